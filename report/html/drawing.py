"""Elements of an SVG picture, and the scales of its axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .escape import escape

WIDTH = 720
"""Of every chart, in units of its view box."""


class Drawing:
    """A picture of WIDTH x height units; `kind` names classes of the style sheet."""

    def __init__(self, height: float) -> None:
        self.height = height
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1
    ) -> None:
        """A filled rectangle."""
        shade = "" if opacity == 1 else f' fill-opacity="{opacity:.2f}"'
        self._parts.append(
            f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}"{shade}/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self._parts.append(
            f'<line class="{kind}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        coordinates = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline class="{kind}" points="{coordinates}"/>')

    def text(self, x: float, y: float, text: object, kind: str = "", anchor: str = "start") -> None:
        """One line of text; anchor: start, middle or end."""
        kind = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<text{kind} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self, title: str, description: str, id: str) -> str:
        """The picture; `id` is unique in its page."""
        return (
            f'<svg class="chart" role="img" aria-labelledby="{id}-t {id}-d" '
            f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_n(self.height)}">'
            f'<title id="{id}-t">{escape(title)}</title>'
            f'<desc id="{id}-d">{escape(description)}</desc>{"".join(self._parts)}</svg>'
        )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def ticks(most: float, count: int = 4) -> list[float]:
    """About `count` round values from 0 to the first at or above `most`."""
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * (1 - 1e-9))
    last = math.ceil(most / step - 1e-9)
    return [step * i for i in range(last + 1)]


def shorten(text: str, longest: int) -> str:
    """A label without its middle when it is longer than `longest`."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]}…{text[len(text) - (longest - 1) // 2 :]}"
