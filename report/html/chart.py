"""A chart: its picture and the numbers in it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .drawing import Drawing
from .escape import escape
from .style import CHART, LIGHT

if TYPE_CHECKING:
    import pyarrow

Value: TypeAlias = str | int | float | None


@dataclass(frozen=True, repr=False)
class Chart:
    """A picture and its numbers, as a notebook and a report show them."""

    title: str
    description: str
    """What the picture shows, in words."""
    drawing: Drawing
    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    """The numbers of the picture, a value per column; None: unknown."""
    left_out: str = ""
    """What the picture leaves out."""

    def svg(self, id: str = "chart") -> str:
        """The picture as SVG; `id` is unique in its page."""
        return self.drawing.svg(self.title, self.description, id)

    def figure(self, id: str) -> str:
        """The picture, its description and its numbers as an element of a page."""
        text = self.description + (f" {self.left_out}" if self.left_out else "")
        return (
            f'<figure><div class="wide" tabindex="0" role="group" '
            f'aria-label="{escape(self.title)}">{self.svg(id)}</div>'
            f"<figcaption><strong>{escape(self.title)}.</strong> {escape(text)}</figcaption>"
            f"<details><summary>Numbers: {escape(self.title)}</summary>"
            f'<div class="wide" tabindex="0" role="group" '
            f'aria-label="Numbers: {escape(self.title)}">{self._table()}</div></details></figure>'
        )

    def to_arrow(self) -> pyarrow.Table:
        """The numbers as a pyarrow.Table."""
        import pyarrow

        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        arrays = [pyarrow.array(list(column)) for column in columns]
        return pyarrow.table(arrays, names=list(self.columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The numbers for any library that reads the Arrow PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Chart: {self.title}>"

    def picture(self) -> str:
        """The picture as an SVG file: with its own style, on white."""
        ground = f".chart{{{LIGHT}background:#fff;max-width:60em}}"
        name = f"chart-{zlib.crc32(self.title.encode()):08x}"
        return self.svg(name).replace("<title", f"<style>{CHART}{ground}</style><title", 1)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.picture()

    def _table(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Value) -> str:
    if value is None:
        return "<td>?</td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f'<td class="n">{text}</td>'
