"""The columns of a table: selection, widths and cell texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

LEFT = 2
"""Terminal columns for the cursor and the mark; a gap of one column follows each cell."""

Cell: TypeAlias = str | tuple[str, str] | list[tuple[str, str]]
"""Text, or text and the name of its style, or several of these side by side."""


class GridColumn(NamedTuple):
    """A column of the table."""

    key: str
    title: str
    width: int
    right: bool = False
    priority: int = 0
    """On narrow terminals columns with the highest number are omitted first."""
    grows: bool = False
    """The column takes remaining space."""
    ends: bool = False
    """Texts differ at their ends: a long text loses its middle."""
    most: int = 0
    """Maximum width of a growing column; 0: no limit."""


def columns_in(width: int, columns: Sequence[GridColumn]) -> list[tuple[int, int]]:
    """(number, width) of the columns that fit into `width` terminal columns."""
    keep = list(range(len(columns)))

    def needed() -> int:
        return LEFT + sum(columns[i].width + 1 for i in keep)

    while needed() > width and any(columns[i].priority for i in keep):
        keep.remove(max(keep, key=lambda i: (columns[i].priority, i)))
    widths = {i: columns[i].width for i in keep}
    spare = width - needed()
    growing = [i for i in keep if columns[i].grows]
    while spare > 0 and growing:  # equally, until a column reaches its maximum
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
    """The title with the sort arrow, which is visible in narrow columns too."""
    if len(title) + len(arrow) > width:
        title = title.partition(" (")[0]
    if len(title) + len(arrow) > width:
        title = title.replace(" ", "")[: width - len(arrow)] if arrow else title
    return title + arrow


def fit(text: str, width: int, right: bool) -> str:
    """The text in exactly `width` terminal columns."""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    return " " * (width - length) + text if right else text + " " * (width - length)
