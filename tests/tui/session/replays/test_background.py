"""Work in its own thread: progress, errors, stopping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.tui.session.replays.background import STOPPING, Background


@dataclass(frozen=True)
class View:
    running: str = ""
    done: float = 0.0
    error: str = ""


class Work(Background[View]):
    def __init__(self) -> None:
        super().__init__("work", View())

    def start(self, work: Callable[[], None]) -> None:
        self._stopping.clear()
        self._tell(running="step", done=0.5)
        self._start(work)

    def until_stopped(self) -> None:
        self._stopping.wait()


def test_work_that_ended_shows_no_step() -> None:
    work = Work()
    work.start(lambda: None)
    work.wait()
    assert (work.view, work.running) == (View(), False)


def test_stop_says_so_until_the_work_ends() -> None:
    work, may_end = Work(), threading.Event()

    def go() -> None:
        work.until_stopped()
        may_end.wait()

    work.start(go)
    work.stop(wait=False)
    assert (work.view.running, work.running) == (STOPPING, True)
    may_end.set()
    work.wait()
    assert work.view.running == ""


@pytest.mark.parametrize(
    ("raised", "told"),
    [(UsageError("no\n  fabric"), "no fabric"), (KeyError("x"), "KeyError: 'x'")],
)
def test_an_exception_is_told_in_one_line(raised: Exception, told: str) -> None:
    work = Work()

    def go() -> None:
        raise raised

    work.start(go)
    work.wait()
    assert work.view == View(error=told)
