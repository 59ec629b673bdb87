"""When the jobs of a run were done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..fabrics.fabric import Fabric
from ..packets.bounds import bounds
from ..packets.model.model import EngineResult, Model
from .graph import Job
from .offered import OfferedJobs, offer_jobs


class JobTimes(NamedTuple):
    """Of one job in one run, ps."""

    name: str
    workers: int
    start: int
    end: int | None
    """When its last message is acknowledged and its last computation done; None: never."""
    iterations: tuple[int, ...]
    """Ends of the iterations that are done."""
    bound: int
    """Lower bound of `end - start`, alone on an idle fabric."""
    priority: int = 0
    """As of `Job`."""


def alone_ps(jobs: Sequence[Job], fabric: Fabric, model: Model, rate_share: float) -> list[int]:
    """Lower bounds of the times of jobs, each alone on an idle fabric."""
    found = []
    for job in jobs:
        load = offer_jobs([job], fabric, model, 1).workload
        found.append(bounds(load, fabric, model, rate_share).completion_ps - job.start_ps)
    return found


def job_times(
    jobs: Sequence[Job], alone: Sequence[int], offered: OfferedJobs, result: EngineResult
) -> list[JobTimes]:
    """The times of all jobs of a run. alone: of `alone_ps`."""
    ends = np.concatenate([result.completed_ps, result.computed_ps])
    found = []
    for number, (job, bound) in enumerate(zip(jobs, alone, strict=True)):
        own = offered.job == number
        done, of = ends[own], offered.iteration[own]
        last = np.zeros(job.iterations, np.int64)
        np.maximum.at(last, of, np.where(done < 0, np.iinfo(np.int64).max, done))
        whole = np.maximum.accumulate(last)
        found.append(
            JobTimes(
                job.name,
                len(job.hosts),
                job.start_ps,
                int(whole[-1]) if (done >= 0).all() else None,
                tuple(whole[whole < np.iinfo(np.int64).max].tolist()),
                bound,
                job.priority,
            )
        )
    return found
