"""Progress of work counted in steps, such as seeds: a bar with the time left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from .progress import COMPILES, ProgressAs

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the work, the steps done and the number of steps."""


@contextmanager
def steps_shown(how: ProgressAs) -> Iterator[Tell | None]:
    """The function to call with each step: `auto` is a bar on a terminal.

    Without a terminal `auto` only reports that kernels are compiled.
    """
    if how == "json":
        yield _json_line
    elif how == "bar" or (how == "auto" and sys.stderr.isatty()):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with bar:
            task = bar.add_task("", total=None)
            last = ""

            def tell(what: str, done: int, total: int) -> None:
                nonlocal last
                if what != last:  # each task has its own speed and time left
                    bar.reset(task)
                    last = what
                bar.update(task, description=what, completed=done, total=total)

            yield tell
    else:
        yield _says_that_it_compiles() if how == "auto" else None


def _says_that_it_compiles() -> Tell:
    said = False

    def tell(what: str, _done: int, _total: int) -> None:
        nonlocal said
        if what.startswith("compiling") and not said:
            said = True
            print(COMPILES, file=sys.stderr, flush=True)

    return tell


def _json_line(what: str, done: int, total: int) -> None:
    record = {"step": what, "done": done, "total": total}
    print(json.dumps(record), file=sys.stderr, flush=True)
