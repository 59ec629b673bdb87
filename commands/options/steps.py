"""Progress of work counted in steps, such as seeds: a bar with the time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from .progress import ProgressAs, new_bar, says_that_it_compiles, shows_bar

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the work, the steps done and the number of steps."""


@contextmanager
def steps_shown(how: ProgressAs) -> Iterator[Tell | None]:
    """The function to call with each step: `auto` is a bar on a terminal.

    Without a terminal `auto` only reports that kernels are compiled.
    """
    if how == "json":
        yield _json_line
    elif shows_bar(how):
        from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

        share, left = TextColumn("{task.percentage:.0f} %"), TextColumn("left:")
        with new_bar(share, TimeElapsedColumn(), left, TimeRemainingColumn()) as bar:
            task = bar.add_task("", total=None)
            last = ""

            def tell(what: str, done: int, total: int) -> None:
                nonlocal last
                if what != last:  # each task has its own speed and time left
                    bar.reset(task)
                    last = what
                bar.update(task, description=what, completed=done, total=total)

            yield tell
    elif how == "auto":
        say = says_that_it_compiles()
        yield lambda what, _done, _total: say(what.startswith("compiling"))
    else:
        yield None


def _json_line(what: str, done: int, total: int) -> None:
    import json

    record = {"step": what, "done": done, "total": total}
    print(json.dumps(record), file=sys.stderr, flush=True)
