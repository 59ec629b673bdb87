"""`rocescope analyze --live`: a line per interval and per new critical finding, then the report.

end.
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ..analyzer.pipeline.threads import give_back_large_arrays
from .options.capturing import (
    Ending,
    Until,
    ended_by_signals,
    said_if_slow,
    say,
    say_owners_unknown,
    say_what,
)
from .options.reading import PathKey

if TYPE_CHECKING:
    from ..analyzer.results.analysis import Analysis, LiveInterval
    from ..analyzer.results.diagnosis import Diagnosis, Place
    from ..analyzer.summary.names import FlowOrder
    from ..probes.live import LiveOptions


# New critical findings and stragglers of a live analysis, one line each, while it runs.

EVERY_S = 1.0
PART = 20
"""Packets wait in the rings meanwhile: a diagnosis takes at most one part of the time in so
many."""
MOST_FLOWS = 2_000
"""A diagnosis of more flows takes too long; the report at the end covers all."""
FIXED_S, PER_FLOW_S = 0.1, 0.002
"""What the first diagnosis may take on a slow machine; the ones before tell what the next takes."""
MARGIN = 2
"""A diagnosis may take one part in N of the time that the rings last."""


class Criticals:
    """Which critical findings and stragglers are new."""

    def __init__(
        self, diagnose: Callable[[], Diagnosis], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """diagnose: all findings so far; clock: seconds."""
        self._diagnose, self._clock = diagnose, clock
        self._next = clock() + EVERY_S
        self._pace = 1.0
        """How long the last diagnosis took, as a share of what was expected at first."""
        self._told: set[tuple[str, Place]] = set()
        self._said: set[str] = set()

    def lines(self, flows: int, room_s: float = inf) -> list[str]:
        """The sentence of each new finding, or why there is none; empty until it is time again.

        room_s: seconds that packets may wait without loss.
        """
        from ..report.notes import sentence

        began = self._clock()
        if began < self._next:
            return []
        usual = FIXED_S + PER_FLOW_S * flows
        why = None
        if flows > MOST_FLOWS:
            why = f"more than {MOST_FLOWS:,} flows: the diagnosis comes with the report"
        elif MARGIN * self._pace * usual > room_s:
            why = "the packet rate is too high to diagnose now: the diagnosis comes with the report"
        if why is not None:
            self._next = began + EVERY_S
            new_reason = why not in self._said
            self._said.add(why)
            return [why] if new_reason else []
        findings = self._diagnose().findings
        critical = [f for f in findings if f.severity == "critical" or f.kind == "straggler"]
        now = self._clock()
        self._pace = (now - began) / usual
        self._next = now + max(EVERY_S, PART * (now - began))
        new = [f for f in critical if (f.kind, f.place) not in self._told]
        self._told |= {(f.kind, f.place) for f in new}
        return [f"{f.severity}: {sentence(f)}" for f in new]


def analyze_live(
    interfaces: Sequence[str],
    live: LiveOptions,
    until: Until,
    *,
    json: bool,
    path_by: PathKey,
    window_ns: int,
    interval_ns: int,
    idle_ns: int,
    flow_order: FlowOrder | None,
    job_logs: tuple[str, ...],
    file: Path | None,
) -> tuple[Analysis, int]:
    """Analyse interfaces and print the intervals; returns the analysis and the exit code."""
    give_back_large_arrays()
    from ..analyzer.pipeline.options import AnalyzeOptions
    from ..probes.live_analysis import LiveAnalysis

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
    from ..report.files import encode_json

    sys.stdout.buffer.write(encode_json(interval))
    sys.stdout.buffer.flush()


def _table_lines(interval: LiveInterval) -> None:
    from ..report.terminal.report import interval_lines

    print("\n".join(interval_lines(interval)), flush=True)
