"""Captures in, an Analysis out: what `rocescope analyze` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results.analysis import Analysis
from .options import AnalyzeOptions
from .progress import Progress
from .run import open_run


def analyze(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
) -> Analysis:
    """Analyse capture files, "-" for standard input.

    Several files are several taps unless `options.concat`. An interrupt
    (SIGINT) ends reading; the result then says `complete=False`, unless the
    file was followed, which ends no other way. Raises
    UnreadableInput when nothing could be read, UsageError for options that
    make no sense.
    """
    with open_run(paths, options, progress) as run:
        complete = run.read()
        return run.result(complete or options.follow)
