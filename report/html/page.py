"""An HTML page: the paragraphs, sections and tables of a report, and charts between them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

from rich.table import Column, Table
from rich.text import Text

from ...version import VERSION
from .. import human
from ..human import UNICODE, UNKNOWN
from ..terminal.page import Page, SafeConsole, new_table
from .drawing import STYLE, Chart, escape

LARGEST = 1_900_000
"""Bytes of the parts of a page, which is below 2 MB with its style and its end."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDTH = 110
"""Columns for which the parts of a report choose their columns: all of them."""
_STYLES = {"red": "bad", "yellow": "warn", "green": "good", "blue": "cold", "dim": "soft"}
_BARS = frozenset(UNICODE.levels + UNICODE.eighths) - {" "}


class HtmlPage(Page):
    """The parts of a report as HTML; every text is escaped.

    The page takes LARGEST bytes; it says how many parts did not fit.
    """

    def __init__(self, title: str) -> None:
        super().__init__(SafeConsole(file=io.StringIO(), width=_WIDTH))
        self.glyphs = UNICODE
        self._title = title
        self._parts: list[str] = []
        self._bytes = self._left_out = self._charts = 0
        self._open = self._dropped = False
        """Dropped: the heading of this section did not fit."""
        self._section = title

    def add(self, element: str) -> None:
        """A whole element; its texts are escaped."""
        size = len(element.encode())
        if self._dropped or self._bytes + size > LARGEST:
            self._left_out += 1
            return
        self._bytes += size
        self._parts.append(element)

    def line(self, text: str, style: str = "") -> None:
        self.say(text, style)

    def say(self, text: str, style: str = "", indent: int = 0, mark: str = "") -> None:
        kind = _kind(style) or ("lead" if style == "bold" else "")
        line = f"{mark} {text}" if mark.strip() else text
        self.add(f"<p{_class(kind)}>{escape(line)}</p>")

    def warn(self, lines: Iterable[str], most: int | None = None) -> None:
        for line in list(lines)[:most]:
            self.say(f"{self.glyphs.warning} {line}", "yellow")

    def gap(self) -> None:
        """Sections have their own distance."""

    def section(self, title: str, text: str = "", good: bool = False) -> None:
        self._close()
        self._dropped = False
        self._section = title
        mark = f' <span class="good">{self.glyphs.good}</span>' if good else ""
        before = self._left_out
        self.add(f"<section><h2>{escape(title)}{mark}</h2>")
        self._open = self._left_out == before
        self._dropped = not self._open
        if text:
            self.say(text)

    def draw(self, fill: Callable[[Table], None], drop: bool = False) -> None:
        """A table; `drop` omits columns without any value."""
        table = new_table(2)
        fill(table)
        columns = [c for c in table.columns if not drop or any(str(v) != "-" for v in c.cells)]
        rows = list(zip(*([*column.cells] for column in columns), strict=True))
        self.unknowns |= any(str(cell) == UNKNOWN for row in rows for cell in row)
        head = "".join(_heading(column) for column in columns)
        body = "".join(
            "<tr>"
            + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True))
            + "</tr>"
            for row in rows
        )
        self.table(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")

    def table(self, content: str) -> None:
        """A table that scrolls by itself on a narrow screen."""
        self.add(
            '<div class="wide" tabindex="0" role="group" '
            f'aria-label="Table: {escape(self._section)}"><table>{content}</table></div>'
        )

    def more(self, left: int, what: str, plural: str | None = None) -> None:
        if left > 0:
            count = human.counted(left, what, plural)
            self.say(f"… {count} not shown here; --format json has all", "dim")

    def chart(self, chart: Chart | None) -> None:
        """A picture with its numbers, if there is any."""
        if chart is not None:
            self._charts += 1
            self.add(chart.figure(f"chart{self._charts}"))

    def document(self) -> bytes:
        """The whole page in UTF-8."""
        if self._left_out:
            self.section("Left out")
            parts = human.counted(self._left_out, "part")
            text = f"{parts} of this report not shown: it is limited to 2 MB."
            self._parts.append(f'<p class="warn">{escape(text)}</p>')
        self._close()
        title = escape(self._title)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="referrer" content="no-referrer">'
            f"<title>{title}</title><style>{STYLE}</style></head><body>"
            f"<header><h1>{title}</h1></header><main>"
            f"{''.join(self._parts)}</main>"
            f"<footer><p>Written by rocescope {escape(VERSION)}. This file needs no other file and "
            "no network.</p></footer></body></html>\n"
        ).encode()

    def _close(self) -> None:
        if self._open:
            self._parts.append("</section>\n")
        self._open = False


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _kind(style: str) -> str:
    """The class that stands for a style of the terminal."""
    return next((_STYLES[word] for word in style.split() if word in _STYLES), "")


def _heading(column: Column) -> str:
    kind = "n" if column.justify == "right" else ""
    text = escape(str(column.header))
    if not text:
        return f"<td{_class(kind)}></td>"
    return f'<th scope="col"{_class(kind)}>{text}</th>'


def _cell(cell: object, column: Column) -> str:
    """A cell; pictures of characters are no text to a screen reader."""
    text = str(cell)
    kinds = ["n"] * (column.justify == "right") + ["fold"] * (column.overflow == "fold")
    if isinstance(cell, Text):
        kinds.append(_kind(str(cell.style)))
    content = escape(text)
    if _BARS & set(text):
        content = f'<span class="bars" aria-hidden="true">{content}</span>'
    return f"<td{_class(' '.join(filter(None, kinds)))}>{content}</td>"
