"""Numbers with units, and bars of characters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..analyzer import words

if TYPE_CHECKING:
    from ..analyzer.results.flow import Owner

UNKNOWN = "?"


def count(value: int | None) -> str:
    """`1,234`, from a million on `1.23 M`, `?` for unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if value < 1_000_000 else words.scaled(value, "")


def size(value: float | None) -> str:
    """Bytes: `12.3 kB`."""
    return UNKNOWN if value is None else words.scaled(value, "B")


def message_size(value: float | None) -> str:
    """Bytes of a message: `64 KiB` for a multiple of a power of 1,024, else as `size`."""
    if value is not None:
        for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= scale and value % scale == 0:
                return f"{value / scale:,.0f} {unit}"
    return size(value)


def rate(bits_per_second: float | None) -> str:
    """`47.9 Gb/s`."""
    return UNKNOWN if bits_per_second is None else words.scaled(bits_per_second, "b/s")


def duration(nanoseconds: float | None) -> str:
    """`850 ns`, `12.0 us`, `537 ms`, `1.20 s`, `3 min 20 s`."""
    return UNKNOWN if nanoseconds is None else words.duration(nanoseconds)


def percent(share: float | None) -> str:
    """A share of 1 as `12.5 %`; only 0 is printed as `0 %`, only 1 as `100 %`."""
    if share is None:
        return UNKNOWN
    value = share * 100
    if value == 0 or value == 100:
        return f"{value:.0f} %"
    if value < 0.01:
        return "<0.01 %"
    if 99.95 <= value < 100:
        return ">99.9 %"
    return f"{value:.2f} %" if value < 0.995 else f"{value:.1f} %"


def queue_pair(number: int) -> str:
    """`0x0011ac`"""
    return f"0x{number:06x}"


def owner(process: Owner) -> str:
    """The owner of a flow's queue pair, and its end: "python, pid 4711, rank 3 (source)"."""
    known = [words.printable(process.command or process.host or process.device or "?")]
    if process.pid is not None:
        known.append(f"pid {process.pid}")
    sender, receiver = process.ranks
    if sender is not None and receiver is not None:
        known.append(f"rank {sender} to rank {receiver}")
    elif process.rank is not None:
        known.append(f"rank {process.rank}")
    return f"{', '.join(known)} ({process.end})"


def counted(number: int | None, singular: str, plural: str | None = None) -> str:
    """`1 flow`, `2 flows`."""
    return f"{count(number)} {words.noun(number, singular, plural)}"


def span(values: Sequence[float], text: object = None) -> str:
    """`8`, or `2 to 8` if the values differ; `text` formats one value."""
    show = text if callable(text) else str
    low, high = show(min(values)), show(max(values))
    return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters of bars and marks, for terminals with and without Unicode."""

    levels: str
    """Column heights from nothing to full."""
    eighths: str
    """Widths of the last cell of a horizontal bar, from 1/8 to full."""
    ellipsis: str
    arrow: str
    warning: str
    good: str
    bad: str
    severities: str
    """Marks of findings: critical, warning, note."""

    def columns(self, values: Sequence[float], top: float | None = None) -> str:
        """One character per value, its height relative to the largest (or to `top`)."""
        most = max(values, default=0) if top is None else top
        if most <= 0:
            return self.levels[0] * len(values)
        steps = len(self.levels) - 1
        # Every value above zero shows at least the lowest step.
        heights = (0 if v <= 0 else max(1, min(steps, round(v / most * steps))) for v in values)
        return "".join(self.levels[height] for height in heights)

    def sparkline(self, values: Sequence[int], width: int) -> str:
        """At most `width` columns: sums of neighbouring values."""
        if len(values) <= width:
            return self.columns(values)
        edges = [i * len(values) // width for i in range(width + 1)]
        means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
        return self.columns(means)

    def bar(self, share: float, width: int) -> str:
        """A horizontal bar; `share` of 1 fills `width` characters."""
        steps = len(self.eighths)
        filled = round(max(0.0, min(1.0, share)) * width * steps)
        full, part = divmod(filled, steps)
        if filled == 0 and share > 0:
            part = 1
        return self.eighths[-1] * full + (self.eighths[part - 1] if part else "")

    def shorten(self, text: str, width: int) -> str:
        """`text` with its middle left out when it is longer than `width`."""
        if len(text) <= width:
            return text
        keep = width - len(self.ellipsis)
        return text[: (keep + 1) // 2] + self.ellipsis + text[len(text) - keep // 2 :]

    def shortened(self, names: Collection[str], width: int) -> dict[str, str]:
        """Each name in at most `width` characters, different names differently.

        In this order: without its middle, words before numbers as initials (l1-e3-s2-e7), without
        another part, numbered.
        """
        cut = {name: self.shorten(name, width) for name in names}
        if len(set(cut.values())) == len(cut):
            return cut
        initials = {name: re.sub(r"([A-Za-z])[A-Za-z]+(\d)", r"\1\2", name) for name in cut}
        if len(set(initials.values())) == len(cut) and max(map(len, initials.values())) <= width:
            return initials
        keep = width - len(self.ellipsis)
        for tail in sorted(range(keep + 1), key=lambda tail: abs(tail - keep // 2)):
            other = {
                name: name
                if len(name) <= width
                else name[: keep - tail] + self.ellipsis + name[len(name) - tail :]
                for name in cut
            }
            if len(set(other.values())) == len(cut):
                return other
        room = width - len(f"{self.ellipsis}{len(cut)}")
        return {
            name: name if len(name) <= width else f"{name[:room]}{self.ellipsis}{number}"
            for number, name in enumerate(cut, 1)
        }


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉█", "…", "→", "▲", "✓", "●", "✗!·")
ASCII = Glyphs(" .:-=+*#", "#", "..", ">", "!", "ok", "*", "x!-")
