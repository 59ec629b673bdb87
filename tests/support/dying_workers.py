"""A worker that dies in its first task, as one that the kernel kills for its memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rocescope.cluster import split, work


def die_once(marker: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task; the first process with `marker` kills itself before it leaves a result."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if "always" in marker or _first(marker):
        work.os.rename = die  # type: ignore[assignment]
    return task(*arguments)


def _first(marker: str) -> bool:
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class DyingExecutor(ProcessPoolExecutor):
    """Workers of which one dies in each stage whose task has the name `stage`."""

    def __init__(self, marker: str, stage: str) -> None:
        super().__init__(1, mp_context=multiprocessing.get_context("spawn"))
        self._marker, self._stage = marker, stage

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        if task.__name__ == self._stage:
            return super().submit(die_once, self._marker, task, *arguments)
        return super().submit(task, *arguments)


STAGES = ("map_capture", "reduce_partition")
assert split.map_capture.__name__ == STAGES[0]
