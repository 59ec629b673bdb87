"""Runs all tasks of a plan on an executor of `concurrent.futures`, whatever stands behind it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, as_completed
from multiprocessing.process import BaseProcess
from typing import Self

from ..analyzer.errors import RocescopeError
from .plan import Plan, read_plan
from .reduce import reduce_partition
from .split import map_capture
from .work import Work
from .workers import MakeExecutor

Tell = Callable[[str, int, int], None]
"""Called with a stage, and how much of how much of it is done."""
_MOST_DEATHS = 3
"""Of workers in a row without a task that ends in between."""


def run_tasks(folder: str, make: MakeExecutor, tell: Tell = lambda what, done, total: None) -> None:
    """Run the stages map and reduce of a plan as far as they are not done.

    A task whose worker dies runs again; one that fails lets the others of its stage end, so that
    the next run does only what is missing. Raises the error of the first that failed.
    """
    work = Work(folder)
    plan = read_plan(work)
    partitions = dict.fromkeys(range(plan.partitions), 1)
    with _Warm(make) as warm:
        for stage in (
            _Stage(plan.digest, "splitting captures", "map", map_capture, _bytes(plan)),
            _Stage(plan.digest, "measuring partitions", "reduce", reduce_partition, partitions),
        ):
            stage.run(work, warm, tell)


def _bytes(plan: Plan) -> dict[int, int]:
    return {number: max(source.bytes, 1) for number, source in enumerate(plan.sources)}


class _Stage:
    """The tasks of one stage; plan: its digest; sizes: of each task by its number."""

    def __init__(
        self,
        plan: str,
        title: str,
        name: str,
        task: Callable[[str, int], None],
        sizes: dict[int, int],
    ) -> None:
        self._plan, self._title, self._name = plan, title, name
        self._task, self._sizes = task, sizes

    def run(self, work: Work, warm: _Warm, tell: Tell) -> None:
        """Run what is not done."""
        deaths = 0
        while missing := self._missing(work):
            before = len(missing)
            try:
                self._round(work, warm.executor(), missing, tell)
            except BrokenExecutor:
                warm.end()
                deaths = deaths + 1 if len(self._missing(work)) == before else 0
                if deaths == _MOST_DEATHS:
                    raise RocescopeError(
                        f"workers of stage {self._name} die ({deaths} in a row, at {self._name}"
                        f" {missing[0]} or after): they may lack memory; more partitions need "
                        "less memory each"
                    ) from None

    def _missing(self, work: Work) -> list[int]:
        """Tasks that are not done, the largest first: they would end last."""
        missing = [n for n in self._sizes if not work.done(self._plan, self._name, n)]
        return sorted(missing, key=lambda n: -self._sizes[n])

    def _round(self, work: Work, executor: Executor, missing: list[int], tell: Tell) -> None:
        total = sum(self._sizes.values())
        done = total - sum(self._sizes[n] for n in missing)
        tell(self._title, done, total)
        futures = {executor.submit(self._task, work.folder, n): n for n in missing}
        errors: list[BaseException] = []
        for future in as_completed(futures):
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                raise error
            if error is not None:
                errors.append(error)
                continue
            done += self._sizes[futures[future]]
            tell(self._title, done, total)
        if errors:
            raise errors[0]


class _Warm:
    """An executor for all stages: a process takes longer to start than many a task."""

    def __init__(self, make: MakeExecutor) -> None:
        self._make = make
        self._executor: Executor | None = None
        self._before: set[BaseProcess] = set()

    def executor(self) -> Executor:
        """The executor; a new one after `end`."""
        if self._executor is None:
            self._before = set(multiprocessing.active_children())
            self._executor = self._make()
        return self._executor

    def end(self) -> None:
        """End the executor, its local processes at once.

        Tasks are not cancelled before: Dask does it, and an executor whose processes are killed
        fails at cancelled tasks.
        """
        executor, self._executor = self._executor, None
        if executor is None:
            return
        executor.shutdown(wait=False)
        for process in set(multiprocessing.active_children()) - self._before:
            process.kill()
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._executor is not None:
            self._executor.shutdown()
        self.end()
