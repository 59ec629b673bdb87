"""Where tasks run."""

from __future__ import annotations

import sys
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from captures import data
from clusters import planned

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster import workers as module
from rocescope.cluster.merge import merge
from rocescope.cluster.run import run_tasks
from rocescope.cluster.workers import workers_of

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
    monkeypatch.setattr(module, "find_spec", lambda package: package)
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
    monkeypatch.setattr(module, "find_spec", lambda package: None)
    with pytest.raises(
        UsageError, match=r"which is not installed: pip install 'rocescope\[cluster"
    ):
        workers_of("tls://scheduler:8786")
