"""Horizontal bars with their numbers, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from ...report.words import human
from ...report.words.human import UNICODE


class Bar(NamedTuple):
    """One line."""

    label: str
    value: float
    note: str = ""
    """Text after the number, such as `◂ p99`."""
    span: tuple[int, int] = (0, 0)
    """Lowest and highest value of a histogram bucket."""


def bar_lines(title: str, bars: Sequence[Bar], width: int, height: int, legend: str = "") -> Text:
    """Bars of at most `height` lines, each with its share of the sum."""
    text = Text(f"{title}\n", "bold", no_wrap=True, overflow="ellipsis")
    if not bars:
        text.append("  no values", "dim")
        return text
    total = sum(bar.value for bar in bars)
    most = max(bar.value for bar in bars)
    label = max(len(bar.label) for bar in bars)
    room = max(4, width - label - 12 - max(len(bar.note) for bar in bars))
    for bar in bars[:height]:
        drawn = UNICODE.bar(bar.value / most if most else 0, room)
        text.append(f" {bar.label:>{label}} ", "dim")
        text.append(f"{drawn:<{room}}", "cyan")
        text.append(f" {human.percent(bar.value / total if total else 0):>7}")
        text.append(f" {bar.note}\n", "bold")
    if len(bars) > height:
        text.append(f" and {len(bars) - height} more\n", "dim")
    if legend:
        text.append(f" {legend}", "dim")
    return text
