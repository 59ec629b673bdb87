"""Where tasks run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from captures import data
from clusters import SPRAYED, planned
from dying_workers import STAGES, DyingExecutor

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster import workers as module
from rocescope.cluster.merge import merge
from rocescope.cluster.workers import run_tasks, workers_of

# Where tasks run.

PATH = str(data("c10"))


def check(folder: Path, workers: module.Workers) -> None:
    planned(folder, [PATH], 2)
    run_tasks(str(folder), workers.executor)
    expected = analyze([PATH], AnalyzeOptions())
    assert msgspec.json.encode(merge(str(folder))) == msgspec.json.encode(expected)


@pytest.mark.thorough
def test_processes_of_this_machine(tmp_path: Path) -> None:
    workers = workers_of("local:2")
    assert (workers.processes, workers.here) == (2, True)
    check(tmp_path, workers)
    workers.close()


@pytest.mark.parametrize("text", ["local", "local:0", "local:x", "2", "ssh://host:1", "local:9999"])
def test_other_clusters_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give local:N"):
        workers_of(text)


@pytest.mark.parametrize(
    "text", ["tls://host", "tls://:8786", "tls://h:1/x", "tcp:h:1", "tls://h:x"]
)
def test_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address such as tls://scheduler:8786"):
        workers_of(text)


@pytest.mark.parametrize("host", ["scheduler", "10.0.0.1", "[2001:db8::1]", "127.0.0.1.example"])
def test_without_certificates_only_on_this_machine(host: str) -> None:
    with pytest.raises(UsageError, match="can run code on the workers: give tls://"):
        workers_of(f"tcp://{host}:8786")


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Dask's interface on threads of this process: a scheduler at every address but port 1."""

    class Client:
        asked: list[tuple[str, bool]] = []
        closed = 0
        threads: list[int] | Exception = [1, 1]

        def __init__(self, address: str, security: bool, timeout: int, set_as_default: bool):
            self.asked.append((address, security))
            assert not set_as_default
            if address.endswith(":1"):
                raise OSError("Timed out trying to connect\nmore lines")

        def nthreads(self) -> dict[int, int]:
            if isinstance(self.threads, Exception):
                raise self.threads
            return dict(enumerate(self.threads))

        def get_executor(self, pure: bool = True) -> ThreadPoolExecutor:
            assert not pure  # equal tasks would be one
            return ThreadPoolExecutor(1)

        def close(self) -> None:
            Client.closed += 1

    distributed = ModuleType("distributed")
    vars(distributed).update(
        Client=Client,
        Security=lambda require_encryption: require_encryption,
        KilledWorker=type("KilledWorker", (Exception,), {}),
        client=SimpleNamespace(ClosedClientError=type("ClosedClientError", (Exception,), {})),
        comm=SimpleNamespace(CommClosedError=type("CommClosedError", (OSError,), {})),
    )
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    monkeypatch.setattr(module, "require", lambda package: None)
    return Client


@pytest.mark.parametrize(
    ("address", "encrypted"),
    [("tls://scheduler:8786", True), ("tcp://127.0.0.1:8786", False), ("tcp://[::1]:8786", False)],
)
def test_workers_of_a_scheduler(
    tmp_path: Path, dask: type[Any], address: str, encrypted: bool
) -> None:
    workers = workers_of(address)
    assert dask.asked == [(address, encrypted)]
    assert (workers.processes, workers.here) == (2, False)
    check(tmp_path, workers)
    workers.close()
    assert dask.closed == 1


def test_a_scheduler_that_is_not_there_or_alone(dask: type[Any]) -> None:
    with pytest.raises(RocescopeError, match=r"tls://h:1: Timed out trying to connect$"):
        workers_of("tls://h:1")
    dask.threads = []
    with pytest.raises(RocescopeError, match="tls://h:2 has no worker: start dask worker"):
        workers_of("tls://h:2")
    dask.threads = [1, 4]
    with pytest.raises(UsageError, match="several tasks in one process: start them with dask"):
        workers_of("tls://h:2")
    dask.threads = OSError("Timed out after 30 s")
    with pytest.raises(RocescopeError, match=r"tls://h:2: Timed out after 30 s$"):
        workers_of("tls://h:2")
    assert dask.closed == 3


def test_workers_and_schedulers_that_are_lost(dask: type[Any]) -> None:
    workers = workers_of("tls://h:2")
    distributed = sys.modules["distributed"]
    lost = (CancelledError, distributed.client.ClosedClientError, distributed.comm.CommClosedError)
    for error in lost:
        with pytest.raises(
            RocescopeError, match="connection to the scheduler is lost: .* same command resumes"
        ):
            with workers.errors():
                raise error
    with pytest.raises(RocescopeError, match="workers died in the same task: .* resumes"):
        with workers.errors():
            raise distributed.KilledWorker
    with pytest.raises(FileNotFoundError), workers.errors():
        raise FileNotFoundError


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="which is not installed: .*install distributed"):
        workers_of("tls://scheduler:8786")


# All tasks of a plan on an executor: workers that die, tasks that fail, interruptions.

PATHS = SPRAYED[:2]


class Here(Executor):
    """Runs tasks in this process; `before` is called with each."""

    def __init__(self, before: Callable[[str, int], None] = lambda name, number: None) -> None:
        self._before = before

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            self._before(task.__name__, arguments[1])
            future.set_result(task(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def json(paths: list[str]) -> bytes:
    return msgspec.json.encode(analyze(paths, AnalyzeOptions()))


def test_tasks_run_once_and_their_progress_grows_to_the_end(tmp_path: Path) -> None:
    folder = planned(tmp_path, PATHS, 2)
    ran, told = [], []
    run_tasks(
        folder,
        lambda: Here(lambda name, number: ran.append((name, number))),
        lambda *step: told.append(step),
    )
    assert sorted(ran) == [(name, number) for name in STAGES for number in range(2)]
    assert told[-1] == ("measuring partitions", 2, 2)
    sizes = sum(os.path.getsize(path) for path in PATHS)
    assert ("splitting captures", sizes, sizes) in told
    run_tasks(folder, lambda: Here(lambda name, number: ran.append((name, number))))
    assert len(ran) == 4
    assert msgspec.json.encode(merge(folder)) == json(PATHS)


@pytest.mark.thorough
@pytest.mark.parametrize("stage", STAGES)
def test_the_task_of_a_killed_worker_runs_again(tmp_path: Path, stage: str) -> None:
    folder = planned(tmp_path / "w", PATHS, 2)
    marker = tmp_path / "died"
    run_tasks(folder, lambda: DyingExecutor(str(marker), stage))
    assert marker.exists()
    assert msgspec.json.encode(merge(folder)) == json(PATHS)
    assert sorted(os.listdir(Path(folder, "map")) + os.listdir(Path(folder, "reduce"))) == [
        "0", "0", "1", "1",
    ]  # fmt: skip


@pytest.mark.thorough
def test_workers_that_always_die_end_the_run(tmp_path: Path) -> None:
    folder = planned(tmp_path / "w", PATHS[:1], 1)
    with pytest.raises(RocescopeError, match=r"workers of stage map die \(3 in a row, at map 0"):
        run_tasks(folder, lambda: DyingExecutor("always", STAGES[0]))


def test_a_failed_task_lets_the_others_end_and_the_next_run_does_only_its_own(
    tmp_path: Path,
) -> None:
    folder = planned(tmp_path, PATHS, 2)
    ran = []

    def fail(name: str, number: int) -> None:
        ran.append((name, number))
        if number == 0 and len(ran) < 3:
            raise UnreadableInput("capture 0 is on a disk that is away")

    with pytest.raises(UnreadableInput, match="is away"):
        run_tasks(folder, lambda: Here(fail))
    assert sorted(ran) == [("map_capture", 0), ("map_capture", 1)]
    ran += [("", 0)]
    run_tasks(folder, lambda: Here(fail))
    assert ran[3:] == [("map_capture", 0), ("reduce_partition", 0), ("reduce_partition", 1)]
    assert msgspec.json.encode(merge(folder)) == json(PATHS)


@pytest.mark.thorough
def test_an_interruption_ends_processes_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned(tmp_path, SPRAYED, 2)
    lost: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", lost.append)

    def interrupt(_title: str, done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        run_tasks(folder, workers_of("local:1").executor, interrupt)
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert not lost
    assert [name for name in os.listdir(tmp_path / "map") if name.isdecimal()]


def test_an_interruption_keeps_what_is_done(tmp_path: Path) -> None:
    folder = planned(tmp_path, PATHS, 1)

    class Interrupted(Here):
        def submit(self, task: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
            if arguments[1] == 1:
                raise KeyboardInterrupt
            return super().submit(task, *arguments)

    with pytest.raises(KeyboardInterrupt):
        run_tasks(folder, Interrupted)
    done = os.listdir(tmp_path / "map") if (tmp_path / "map").exists() else []
    assert done == ["0"]
    run_tasks(folder, Here)
    assert msgspec.json.encode(merge(folder)) == json(PATHS)
