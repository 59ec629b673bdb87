"""Files that a task has open at once, against the limit of a process."""

from __future__ import annotations

import resource

from ..analyzer.diagnosis.words import counted
from ..analyzer.errors import UsageError

_OTHERS = 100
"""Files that a process has open besides: libraries, captures, pipes to other processes."""


def allow_open_files(partitions: int, captures: int) -> None:
    """Raise the limit of this process as far as a plan needs; UsageError if that is too far.

    Stage map writes all partitions of a capture. Stage merge reads all partitions of all captures,
    with the verdicts of each partition.
    """
    needed = partitions * (captures + 1) + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(
            f"{partitions} partitions of {counted(captures, 'capture')} need {needed} open"
            f" files, the limit here is {hard} (ulimit -Hn): plan fewer partitions"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
