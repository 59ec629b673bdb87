"""Queues that pauses of a link make: they begin in a pause, and drain after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ..results.captures import Pause
from .case import Case
from .known import CLOCKS_NS

DRAINS = 10
"""A queue that a pause made lasts at most this many times the time paused: a link that is loaded to
nine tenths needs nine times as long to send what it held back."""

WAITS = 2
"""A packet waits for the rest of a pause, and behind what waited before it."""

Span: TypeAlias = tuple[int, int]
"""First and last time, ns."""


def spans_at(case: Case, tap: str | None) -> list[Span]:
    """When the link at a tap was paused, as far as its rate shows, for whatever priority."""
    pauses = [
        pause
        for capture in case.captures
        for its in capture.taps
        if its.name == tap
        for pause in its.pauses
    ]
    return sorted(span for pause in pauses for span in spans_of(pause))


def spans_of(pause: Pause) -> list[Span]:
    """When it paused, as far as the link rate shows."""
    return [(span.from_ns, span.until_ns) for span in pause.spans]


def slack_of(window_ns: int) -> int:
    """How much earlier or later than its windows say a queue may begin or end, ns."""
    return window_ns + CLOCKS_NS


def too_short(paused_ns: int, window_ns: int) -> bool:
    """Whether windows cannot tell that a queue lasts longer than pauses of this time explain."""
    return 2 * slack_of(window_ns) > DRAINS * paused_ns


def made_by(pauses: Sequence[Span], queue: Span, window_ns: int, wait_ns: float) -> bool:
    """Whether these pauses made a queue.

    window_ns: width of the windows that tell its times. wait_ns: longest wait of a packet in it.
    Where windows are too wide to tell how long it lasts, no packet waits longer than
    WAITS times the time paused.
    """
    begin, end = queue
    slack = slack_of(window_ns)
    during = [(a, b) for a, b in pauses if a <= end + slack and b >= begin - slack]
    if not any(a <= begin + slack for a, _ in during):
        return False
    paused = sum(min(b, end + slack) - max(a, begin - slack) for a, b in during)
    if too_short(paused, window_ns):
        return wait_ns <= WAITS * paused
    return end - begin - 2 * slack <= DRAINS * paused
