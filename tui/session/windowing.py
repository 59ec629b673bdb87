"""Arithmetic of the time window: move it, scale it, centre it on a time."""

from __future__ import annotations

from typing import TypeAlias

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
