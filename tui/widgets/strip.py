"""A distribution on one line, on a common axis."""

from __future__ import annotations

from collections.abc import Mapping

SHADES = "▒▓"


class Axis:
    """Values from `low` to `high` on `width` columns."""

    def __init__(self, low: float, high: float, width: int) -> None:
        self.low, self.high = low, max(high, low + 1e-9 * max(1.0, abs(low)))
        self.width = max(10, width)

    def place(self, value: float) -> int:
        """The column of a value, clamped to the axis."""
        share = (value - self.low) / (self.high - self.low)
        return round(min(1.0, max(0.0, share)) * (self.width - 1))

    def ticks(self) -> str:
        """A line with the numbers of five values."""
        line = [" "] * (self.width + 6)
        for i in range(5):
            value = self.low + (self.high - self.low) * i / 4
            text = f"{value:.2f}"
            at = self.place(value)
            line[at : at + len(text)] = text
        return "".join(line).rstrip()


def strip(
    axis: Axis,
    low: float,
    high: float,
    quantiles: Mapping[str, float],
    marks: Mapping[str, float] | None = None,
) -> str:
    """`├──▒▒▓▓█▓▓▒▒──┤`: min and max, p5 to p95, p25 to p75, the median; with marks."""
    line = ["·" if i % max(1, axis.width // 4) == 0 else " " for i in range(axis.width)]
    first, last = axis.place(low), axis.place(high)
    for i in range(first, last + 1):
        line[i] = "─"
    for (a, b), glyph in ((("p5", "p95"), SHADES[0]), (("p25", "p75"), SHADES[1])):
        for i in range(axis.place(quantiles[a]), axis.place(quantiles[b]) + 1):
            line[i] = glyph
    if last > first:
        line[first], line[last] = "├", "┤"
    line[axis.place(quantiles["p50"])] = "█"
    for glyph, value in (marks or {}).items():
        line[axis.place(value)] = glyph
    return "".join(line)
