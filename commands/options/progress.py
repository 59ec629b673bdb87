"""Progress on standard error: a bar for people, lines of JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from ...analyzer.pipeline.options import Progress


COMPILES = "rocescope: compiling kernels (first run only, up to three minutes of processor time)"

Report: TypeAlias = "Callable[[Progress], None]"
ProgressAs: TypeAlias = Literal["auto", "none", "bar", "json"]


@contextmanager
def shown(how: ProgressAs) -> Iterator[Report | None]:
    """The function to call with each Progress: `auto` is a bar on a terminal.

    Without a terminal `auto` only reports that kernels are compiled.
    """
    if how == "json":
        yield _json_lines
    elif shows_bar(how):
        from rich.progress import DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        rate = TextColumn("{task.fields[rate]}")
        with new_bar(DownloadColumn(), Speed(), rate, TimeRemainingColumn()) as bar:
            yield _updates(bar)
    elif how == "auto":
        tell = says_that_it_compiles()
        yield lambda progress: tell(progress.compiling)
    else:
        yield None


@contextmanager
def reading_shown(how: ProgressAs, name: str) -> Iterator[Callable[[int, int | None], None]]:
    """The function to call with the bytes read of an input, and their number if it is known."""
    from ...analyzer.pipeline.options import Progress

    with shown(how) as report:

        def tell(done: int, total: int | None) -> None:
            if report is not None:
                report(Progress(name, done, total, 0, 0))

        yield tell


def says_that_it_compiles() -> Callable[[bool], None]:
    """A function that reports, once, that kernels are compiled; called with whether they are."""
    said = False

    def tell(compiling: bool) -> None:
        nonlocal said
        if compiling and not said:
            said = True
            print(COMPILES, file=sys.stderr, flush=True)

    return tell


def _json_lines(progress: Progress) -> None:
    import json

    print(json.dumps(asdict(progress)), file=sys.stderr, flush=True)


def shows_bar(how: ProgressAs) -> bool:
    return how == "bar" or (how == "auto" and sys.stderr.isatty())


def new_bar(*columns: ProgressColumn) -> Bar:
    """A bar on standard error, with these columns after the work and the bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _updates(bar: Bar) -> Report:
    task = bar.add_task("reading", total=None, rate="")
    begin = time.monotonic()

    def update(progress: Progress) -> None:
        elapsed = time.monotonic() - begin
        what = "compiling kernels (first run only)" if progress.compiling else progress.path
        per_second = progress.packets / elapsed / 1e6 if elapsed > 0 else 0.0
        bar.update(
            task,
            description=what,
            completed=progress.bytes_done,
            total=progress.bytes_total,
            rate=f"{per_second:.2f} M packets/s" if progress.packets else "",
        )

    return update


# Progress of work counted in steps, such as seeds: a bar with the time left.

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
