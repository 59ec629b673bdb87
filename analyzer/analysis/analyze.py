"""The analysis of capture files: the engine of `rocescope analyze`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..results.analysis import Analysis
from .options import AnalyzeOptions
from .progress import Progress
from .run import EndedFlows, open_run


def analyze(
    paths: Sequence[str],
    options: AnalyzeOptions,
    progress: Callable[[Progress], None] | None = None,
    ended: EndedFlows | None = None,
) -> Analysis:
    """Analyse capture files, "-" for standard input.

    Several files are several taps unless `options.concat`. SIGINT ends reading; the result then has
    `complete=False`, except with `follow`, which only SIGINT ends. More flows than
    `options.max_flows` end reading too, with `complete=False` and a warning. Raises UnreadableInput
    when nothing could be read, UsageError for invalid options.

    ended: takes the records of flows that leave memory; errors of it end the analysis.
    """
    with open_run(paths, options, progress) as run:
        complete = run.read(alone=True, ended=ended)
        return run.result(complete or (options.follow and run.ended_by is None))
