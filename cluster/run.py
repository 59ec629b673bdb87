"""Runs all tasks of a plan on an executor of `concurrent.futures`, whatever stands behind it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from ..analyzer.errors import RocescopeError, UsageError
from .plan import Plan, read_plan
from .reduce import reduce_partition
from .split import map_capture
from .work import Work

Tell = Callable[[str, int, int], None]
"""Called with a stage, and how much of how much of it is done."""
MakeExecutor = Callable[[], Executor]
_MOST_DEATHS = 3
"""Of workers in a row without a task that ends in between."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Where tasks run."""

    processes: int
    executor: MakeExecutor


def local_workers(text: str) -> Workers:
    """Processes of this machine: `local:N`. UsageError for another text."""
    kind, _, count = text.partition(":")
    if kind != "local" or not count.isdecimal() or not 1 <= int(count) <= 1024:
        raise UsageError(f"--cluster {text}: give local:N, N processes of this machine")
    # A forked process would have the locks, not the threads, of this one.
    context = multiprocessing.get_context("spawn")
    return Workers(
        int(count),
        lambda: ProcessPoolExecutor(int(count), mp_context=context, initializer=_ignore_interrupts),
    )


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the one that waits for the tasks ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_tasks(folder: str, make: MakeExecutor, tell: Tell = lambda what, done, total: None) -> None:
    """Run the stages map and reduce of a plan as far as they are not done.

    A task whose worker dies runs again; one that fails lets the others of its stage end, so that
    the next run does only what is missing. Raises the error of the first that failed.
    """
    work = Work(folder)
    plan = read_plan(work)
    partitions = dict.fromkeys(range(plan.partitions), 1)
    for stage in (
        _Stage(plan.digest, "splitting captures", "map", map_capture, _bytes(plan)),
        _Stage(plan.digest, "measuring partitions", "reduce", reduce_partition, partitions),
    ):
        stage.run(work, make, tell)


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

    def run(self, work: Work, make: MakeExecutor, tell: Tell) -> None:
        """Run what is not done."""
        deaths = 0
        while missing := self._missing(work):
            before = len(missing)
            try:
                with _ending(make()) as executor:
                    self._round(work, executor, missing, tell)
            except BrokenExecutor:
                deaths = deaths + 1 if len(self._missing(work)) == before else 0
                if deaths == _MOST_DEATHS:
                    raise RocescopeError(
                        f"workers of stage {self._name} die ({deaths} in a row, at {self._name}"
                        f" {missing[0]} or after): is their memory enough? More partitions need"
                        " less each"
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


@contextmanager
def _ending(executor: Executor) -> Iterator[Executor]:
    """End the executor; its local processes at once after an error or Ctrl-C."""
    before = set(multiprocessing.active_children())
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
            process.join()
        raise
    executor.shutdown()
