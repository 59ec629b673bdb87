"""Where tasks run, and how the tasks of a plan run there."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    ProcessPoolExecutor,
    as_completed,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from multiprocessing.process import BaseProcess
from typing import Any, Self
from urllib.parse import urlsplit

from ..analyzer.errors import RocescopeError, UsageError, require
from .reduce import reduce_partition
from .split import map_capture
from .work import Plan, Work, read_plan

MakeExecutor = Callable[[], Executor]
_CONNECT_S = 30


@dataclass(frozen=True, slots=True)
class Workers:
    """Where tasks run."""

    processes: int
    executor: MakeExecutor
    here: bool = True
    """Whether they are on this machine."""
    close: Callable[[], None] = lambda: None
    """Ends a connection, not the workers at its other end."""
    errors: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes a RocescopeError of what the executor raises when its workers are lost."""


def workers_of(text: str) -> Workers:
    """`local:N`, or the address of a Dask scheduler. UsageError for another text.

    RocescopeError if the scheduler does not answer or has no worker.
    """
    kind, _, rest = text.partition(":")
    if kind == "local":
        return _local(text, rest)
    if kind in ("tls", "tcp"):
        return _dask(text)
    raise UsageError(
        f"--cluster {text}: give local:N, N processes of this machine, or tls://HOST:PORT, a"
        " scheduler of Dask"
    )


def _local(text: str, count: str) -> Workers:
    if not count.isdecimal() or not 1 <= int(count) <= 1024:
        raise UsageError(f"--cluster {text}: give local:N, N processes of this machine")
    # A forked process would have the locks, not the threads, of this one.
    context = multiprocessing.get_context("spawn")
    return Workers(
        int(count),
        lambda: ProcessPoolExecutor(int(count), mp_context=context, initializer=_end_with_parent),
    )


def _end_with_parent() -> None:
    """A worker ends when its parent does, however that ends, and not before: Ctrl-C reaches all
    processes of a terminal, and the one that waits for the tasks ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="rocescope-parent", daemon=True).start()


def _dask(address: str) -> Workers:
    """The workers of a scheduler. It takes pickled code from everybody who reaches it, so beyond
    this machine it must ask for certificates, which the configuration of Dask names."""
    host = _host_of(address)
    if address.startswith("tcp:") and not _is_loopback(host):
        raise UsageError(
            f"--cluster {address}: every host that reaches tcp:// can run code on the workers: "
            "give tls://"
        )
    require("distributed")
    distributed: Any = import_module("distributed")
    # It prints a traceback when it loses the scheduler.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    encrypted = address.startswith("tls:")
    try:
        client = distributed.Client(
            address,
            security=distributed.Security(require_encryption=encrypted),
            timeout=_CONNECT_S,
            set_as_default=False,
        )
    except _NO_ANSWER as error:
        raise _no_answer(address, error) from None
    try:
        threads = client.nthreads().values()
        if not threads:
            raise RocescopeError(f"--cluster {address} has no worker: start dask worker")
        if max(threads) > 1:
            raise UsageError(  # a task changes the working folder of its process
                f"--cluster {address}: a worker runs several tasks in one process: start them with"
                " dask worker --nworkers N --nthreads 1"
            )
    except BaseException as error:
        client.close()
        if isinstance(error, _NO_ANSWER):
            raise _no_answer(address, error) from None
        raise
    return Workers(
        len(threads),
        # Pure tasks with equal arguments would be one, and a failed one keeps its error.
        lambda: client.get_executor(pure=False),
        False,
        client.close,
        lambda: _errors_of(address, distributed),
    )


_NO_ANSWER = (OSError, RuntimeError, TypeError, ValueError)


def _no_answer(address: str, error: Exception) -> RocescopeError:
    why = (str(error).splitlines() or [type(error).__name__])[0]
    return RocescopeError(f"--cluster {address}: {why}")


@contextmanager
def _errors_of(address: str, distributed: Any) -> Iterator[None]:
    """Dask runs the task of a worker that died on others, and gives up after some of them. It
    cancels all tasks when the scheduler is lost, and takes no more."""
    try:
        yield
    except distributed.KilledWorker:
        raise RocescopeError(
            f"--cluster {address}: several workers died in the same task: they may lack memory; "
            "more partitions need less memory each; the same command resumes the analysis"
        ) from None
    except (
        CancelledError,
        distributed.client.ClosedClientError,
        distributed.comm.CommClosedError,
    ):
        raise RocescopeError(
            f"--cluster {address}: the connection to the scheduler is lost: start the scheduler "
            "and its workers again; the same command resumes the analysis"
        ) from None


def _host_of(address: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(address)
        if parts.hostname and parts.port and not parts.path:
            return parts.hostname
    raise UsageError(f"--cluster {address} is not an address such as tls://scheduler:8786")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


# Runs all tasks of a plan on an executor of `concurrent.futures`, whatever stands behind it.

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
