"""The option for logs of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .parameter import Parameter


@dataclass(frozen=True)
class JobLogs:
    """Logs of the job.

    Parameters
    ----------
    nccl_log
        Logs of the job (NCCL, RCCL, UCX, perftest), such as 'logs/*' (quoted), which name the ranks
        of queue pairs; see docs/ranks.md; may be repeated.
    """

    nccl_log: Annotated[list[str] | None, Parameter(negative="")] = None

    def patterns(self, must_exist: bool = True) -> tuple[str, ...]:
        """Patterns of their names. UsageError for one without a file, unless logs may follow."""
        if self.nccl_log and must_exist:
            from ...analyzer.logs.files import named

            named(self.nccl_log)
        return tuple(self.nccl_log or ())


JOB_LOGS = JobLogs()
