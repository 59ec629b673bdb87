"""The columns of a table: which fit, how wide they are, and texts in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

LEFT = 2
"""Columns of the terminal for the cursor and the mark; each cell has one behind it."""

Cell: TypeAlias = str | tuple[str, str] | list[tuple[str, str]]
"""Text, or text and the name of its style, or several of these side by side."""


class GridColumn(NamedTuple):
    """A column of the table."""

    key: str
    title: str
    width: int
    right: bool = False
    priority: int = 0
    """Where there is no room, columns of the highest number go first."""
    grows: bool = False
    """Takes the room that is left."""
    ends: bool = False
    """Texts differ at their ends: where they are too long, their middle is left out."""
    most: int = 0
    """The widest that it grows to; 0 for no bound."""


def columns_in(width: int, columns: Sequence[GridColumn]) -> list[tuple[int, int]]:
    """(number, width) of those that fit in so many columns of the terminal."""
    keep = list(range(len(columns)))

    def needed() -> int:
        return LEFT + sum(columns[i].width + 1 for i in keep)

    while needed() > width and any(columns[i].priority for i in keep):
        keep.remove(max(keep, key=lambda i: (columns[i].priority, i)))
    widths = {i: columns[i].width for i in keep}
    spare = width - needed()
    growing = [i for i in keep if columns[i].grows]
    while spare > 0 and growing:  # alike, until some have what they can use
        share = max(1, spare // len(growing))
        for i in list(growing):
            most = columns[i].most or width
            extra = min(share, spare, max(0, most - widths[i]))
            widths[i] += extra
            spare -= extra
            if widths[i] >= most:
                growing.remove(i)
    return list(widths.items())


def with_arrow(title: str, arrow: str, width: int) -> str:
    """The arrow of the sorted column is seen in narrow ones too."""
    if len(title) + len(arrow) > width:
        title = title.partition(" (")[0]
    if len(title) + len(arrow) > width:
        title = title.replace(" ", "")[: width - len(arrow)] if arrow else title
    return title + arrow


def fit(text: str, width: int, right: bool) -> str:
    """The text in exactly so many columns of the terminal."""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    return " " * (width - length) + text if right else text + " " * (width - length)
