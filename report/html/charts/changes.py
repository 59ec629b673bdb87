"""Figures of two analyses side by side."""

from __future__ import annotations

from ....analyzer.results.compare import Comparison, Figures
from ...compare import SHARES
from ...terminal.compare import NAMES
from ...words import human
from ..chart import Chart, Value
from ..drawing import WIDTH, Drawing, ticks

_LEFT, _ROW = 130.0, 44.0


def changes(result: Comparison) -> Chart | None:
    """Shares of troubled packets before and after; None if both have none."""
    sides = result.figures_before, result.figures_after
    shares = [(name, _percent(sides[0], name), _percent(sides[1], name)) for name in SHARES]
    shown = [row for row in shares if row[1] or row[2]]
    if not shown:
        return None
    scale = ticks(max(value or 0 for row in shown for value in row[1:]))
    bottom = 26 + _ROW * len(shown)
    drawing = Drawing(bottom + 38)
    wide = WIDTH - 90 - _LEFT
    for tick in scale:
        x = _LEFT + wide * tick / scale[-1]
        drawing.line(x, 22, x, bottom, "axis")
        drawing.text(x, bottom + 16, f"{tick:g}", "soft", "middle")
    drawing.text(_LEFT + wide / 2, bottom + 33, "% of all packets", "soft", "middle")
    for number, (kind, word) in enumerate((("one", "before"), ("two", "after"))):
        drawing.rect(_LEFT + 90 * number, 4, 12, 12, kind)
        drawing.text(_LEFT + 90 * number + 17, 14, word)
    for number, (name, before, after) in enumerate(shown):
        y = 30 + _ROW * number
        drawing.text(_LEFT - 8, y + 20, NAMES[name], "", "end")
        for half, (value, kind) in enumerate(((before, "one"), (after, "two"))):
            length = wide * (value or 0) / scale[-1]
            drawing.rect(_LEFT, y + 17 * half, length, 15, kind)
            text = human.percent(None if value is None else value / 100)
            drawing.text(_LEFT + length + 5, y + 17 * half + 12, text)
    rows: list[tuple[Value, ...]] = [(NAMES[name], *values) for name, *values in shares]
    return Chart(
        "Packets with anomalies, before and after",
        f"Shares of all packets of {result.before} (before) and {result.after} (after).",
        drawing,
        ("figure", "before, %", "after, %"),
        rows,
    )


def _percent(side: Figures, name: str) -> float | None:
    value: int | None = getattr(side, name)
    return None if value is None or not side.packets else 100 * value / side.packets
