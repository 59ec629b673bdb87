"""`rocescope analyze --live`: one line per interval and per new critical finding, the report at the
end."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...analyzer.pipeline.threads import give_back_large_arrays
from ..options.capturing import Until
from .capturing import (
    Ending,
    ended_by_signals,
    said_if_slow,
    say,
    say_owners_unknown,
    say_what,
)
from .criticals import Criticals

if TYPE_CHECKING:
    from ...analyzer.results.analysis import Analysis
    from ...analyzer.results.live import LiveInterval
    from ...analyzer.summary.options import FlowOrder
    from ...probes.live import LiveOptions


def analyze_live(
    interfaces: Sequence[str],
    live: LiveOptions,
    until: Until,
    *,
    json: bool,
    path_by: Literal["entropy", "tap", "srv6"],
    window_ns: int,
    interval_ns: int,
    idle_ns: int,
    flow_order: FlowOrder | None,
    job_logs: tuple[str, ...],
    file: Path | None,
) -> tuple[Analysis, int]:
    """Analyse interfaces and print the intervals; returns the analysis and the exit code."""
    give_back_large_arrays()
    from ...analyzer.pipeline.options import AnalyzeOptions
    from ...probes.live_analysis import LiveAnalysis

    seconds = until.seconds
    options = AnalyzeOptions(
        path_by=path_by,
        window_ns=window_ns,
        idle_ns=idle_ns,
        flow_order=flow_order,
        job_logs=job_logs,
    )
    analysis = LiveAnalysis(interfaces, live, options, interval_ns=interval_ns, count=until.count)

    criticals = Criticals(analysis.diagnosis)

    def tell(interval: LiveInterval) -> None:
        try:
            (_json_line if json else _table_lines)(interval)
        except OSError as error:
            if file is None or error.errno != errno.EIO:
                raise  # else the terminal is gone: the file still gets the result
        came = interval.packets + interval.dropped_frames
        room_s = analysis.source.room_s(came * 1e9 / interval.duration_ns)
        for line in criticals.lines(len(analysis.pipeline.measuring.tracker), room_s):
            say(line)

    with ended_by_signals(analysis.source), ExitStack() as stack:
        with said_if_slow("still compiling kernels (first run only)"):
            stack.enter_context(analysis)
        say_what(analysis.source)
        say_owners_unknown(analysis.reasons)
        known = len(analysis.reasons)
        ending = Ending(analysis.source, seconds)

        def check() -> None:
            nonlocal known
            ending.check()
            say_owners_unknown(analysis.reasons[known:])
            known = len(analysis.reasons)

        analysis.run(tell, check)
        result = analysis.result()
        say_owners_unknown(analysis.reasons[known:])
    if not json and file is None:
        print()
    if analysis.ended_by is not None:
        say(f"ended early: {analysis.ended_by}")
    return result, 1 if analysis.ended_by is not None else 0


def _json_line(interval: LiveInterval) -> None:
    from ...report.files import encode_json

    sys.stdout.buffer.write(encode_json(interval))
    sys.stdout.buffer.flush()


def _table_lines(interval: LiveInterval) -> None:
    from ...report.terminal.intervals import interval_lines

    print("\n".join(interval_lines(interval)), flush=True)
