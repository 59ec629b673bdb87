"""All tasks of a plan on an executor: workers that die, tasks that fail, interruptions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clusters import SPRAYED, planned
from dying_workers import STAGES, DyingExecutor

from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster.merge import merge
from rocescope.cluster.run import run_tasks
from rocescope.cluster.workers import workers_of

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
