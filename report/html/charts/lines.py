"""Several lines over one axis of time, with a legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...words import human
from ..drawing import WIDTH, Drawing, shorten, ticks

MOST = 4
"""Lines of a picture; each has a colour and a dash of its own."""
_KINDS = ("wire", "wire two", "wire three", "wire four")
_LEFT, _RIGHT, _TOP, _PLOT, _LEGEND = 92.0, WIDTH - 10.0, 12.0, 190.0, 18.0


def lines(
    named: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    most: float,
    show: Callable[[float], str],
    under: str,
) -> Drawing:
    """Lines through points of (time in ns, value); at most MOST. most: upper end of the values;
    show: a value in words; under: what the axis of time shows."""
    scale = ticks(most)
    longest = max((time for _, points in named for time, _ in points), default=0.0) or 1.0
    bottom = _TOP + _PLOT
    drawing = Drawing(bottom + 44 + _LEGEND * len(named))
    for tick in scale:
        y = bottom - _PLOT * tick / scale[-1]
        drawing.line(_LEFT, y, _RIGHT, y, "axis")
        drawing.text(_LEFT - 6, y + 4, show(tick), "soft", "end")
    for tick in ticks(longest, 6):
        x = _LEFT + (_RIGHT - _LEFT) * tick / longest
        if tick <= longest * 1.001:
            drawing.line(x, bottom, x, bottom + 4, "axis")
            near = "end" if x > _RIGHT - 20 else "middle"
            drawing.text(x, bottom + 17, human.duration(tick) if tick else "0", "soft", near)
    drawing.text((_LEFT + _RIGHT) / 2, bottom + 33, under, "soft", "middle")
    for number, (name, points) in enumerate(named):
        drawing.path(
            [
                (_LEFT + (_RIGHT - _LEFT) * time / longest, bottom - _PLOT * value / scale[-1])
                for time, value in points
            ],
            _KINDS[number],
        )
        y = bottom + 50 + _LEGEND * number
        drawing.path([(_LEFT, y), (_LEFT + 34, y)], _KINDS[number])
        drawing.text(_LEFT + 42, y + 4, shorten(name, 90))
    return drawing
