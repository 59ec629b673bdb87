"""The time window, the marks and the diagnosis of a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...analyzer.errors import RocescopeError
from ...analyzer.measures.hops.vantage import FabricLinks
from .feeds import Feed
from .judged import Judged
from .snapshot import FlowKey

# Arithmetic of the time window: move it, scale it, centre it on a time.

Span: TypeAlias = tuple[int, int]
"""First and last nanosecond."""

SHORTEST_NS = 1_000


def moved(window: Span, full: Span, by: float) -> Span:
    """The window moved by a multiple of its length, inside the whole."""
    low, high = window
    step = int((high - low) * by)
    step = max(full[0] - low, min(step, full[1] - high))
    return low + step, high + step


def scaled(window: Span | None, full: Span, by: float) -> Span | None:
    """A window `by` times as long with the same start; None if it covers everything."""
    low, high = window or full
    length = max(SHORTEST_NS, int((high - low) * by))
    if length >= full[1] - full[0]:
        return None
    low = min(low, full[1] - length)
    return low, low + length


def around(window: Span | None, full: Span, seconds: float) -> Span:
    """The window (default: a quarter of everything) around a time since the start."""
    low, high = window or (full[0], full[0] + (full[1] - full[0]) // 4)
    half = max(SHORTEST_NS, (high - low) // 2)
    at = min(max(full[0], full[0] + int(seconds * 1e9)), full[1])
    return max(full[0], at - half), at + half


# The user's marks and comments on flows and packets.


@dataclass
class Marks:
    """Comments, empty for marks without a comment; exported captures contain them."""

    flows: dict[FlowKey, str] = field(default_factory=dict)
    packets: dict[tuple[str, int], str] = field(default_factory=dict)
    """By tap and frame number."""

    def toggle(self, key: FlowKey) -> bool:
        """Mark or unmark a flow; returns whether it is marked now."""
        if key in self.flows:
            del self.flows[key]
            return False
        self.flows[key] = ""
        return True


EVERY_S = 1.0
PART = 20
"""The engine waits while it is diagnosed: at most one part of its time in so many, as processor
time. On a busy machine the time of day would delay the next diagnosis by minutes."""
MOST_FLOWS, MOST_LIVE_FLOWS = 20_000, 2_000
"""Of a whole capture, and of a session that still runs: more take too long."""


class Diagnosing:
    """The latest diagnosis of a session; `run` makes the next one in a worker's thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """worked: processor time of the thread that diagnoses, in seconds."""
        self.judged = Judged()
        self._clock, self._worked = clock, worked
        self._next = clock() + EVERY_S

    def begin(self) -> None:
        """Other packets are read from now on."""
        self.judged = Judged()
        self._next = self._clock() + EVERY_S

    def is_due(self, running: bool) -> bool:
        """Whether it is time for another diagnosis."""
        if self.judged.final:
            return running
        return not running or self._clock() >= self._next

    def run(self, feed: Feed, running: bool, fabric: FabricLinks | None = None) -> None:
        """Diagnose what was read so far. fabric: the links of a fabric file."""
        measuring = feed.pipeline.measuring
        flows = len(measuring.tracker)
        before = self.judged
        if flows > (MOST_LIVE_FLOWS if running else MOST_FLOWS):
            why = f"{flows:,} flows are too many to diagnose here: rocescope analyze --brief"
            judged = Judged(why=why, final=not running, numbering=measuring.numbering)
        else:
            begin = self._worked()
            try:
                with feed.pipeline.lock:
                    analysis, numbering = feed.analysis(), measuring.numbering
                judged = Judged.of(analysis, not running, numbering, fabric)
            except RocescopeError as error:
                # A session that runs may have read no frame yet.
                judged = before if running else Judged(why=str(error), final=True)
            took = self._worked() - begin
            self._next = self._clock() + max(EVERY_S, PART * took)
        if self.judged is before:  # otherwise other packets are read by now
            self.judged = judged

    def give_up(self) -> None:
        """There is nothing to diagnose."""
        if not self.judged.final:
            self.judged = replace(self.judged, why="Nothing was read.", final=True)
