"""An HTML page: paragraphs, sections and tables of a report, and charts as SVG between them."""

from __future__ import annotations

import html
import io
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.table import Column, Table
from rich.text import Text

from ...analyzer.words import printable
from ...version import VERSION
from .. import human
from ..human import UNICODE, UNKNOWN
from ..terminal.page import Page, SafeConsole, new_table

if TYPE_CHECKING:
    import pyarrow


# The only way of a text into a page: it cannot become markup.

LONGEST = 1_000
"""Characters of one text; names from captures may be longer than any reader reads."""


def escape(text: object) -> str:
    """A text for the content of an element or for an attribute in double quotes.

    Characters that steer a terminal or the direction of text become `?`; a text of more than
    LONGEST characters is cut.
    """
    shown = printable(str(text))
    if len(shown) > LONGEST:
        shown = f"{shown[:LONGEST]}…"
    return html.escape(shown, quote=True)


# The style sheet: light and dark, narrow and wide, screen and paper.
#
# Colours of charts are those of Okabe and Ito, which people with any colour vision tell apart.

LIGHT: Final = (
    "--ink:#1b1e22;--soft:#545b63;--paper:#fff;--panel:#f4f6f8;--rule:#c9cfd6;--one:#0072b2;"
    "--two:#c24e00;--three:#00785a;--bad:#a8231b;--warn:#7d4a00;--note:#005a87;"
)
_DARK = (
    "--ink:#e6e9ed;--soft:#a9b1ba;--paper:#13171c;--panel:#1d232a;--rule:#404954;--one:#56b4e9;"
    "--two:#f0912b;--three:#2fc49a;--bad:#ff8f85;--warn:#f5b544;--note:#7fc8f5;"
)
CHART: Final = (
    ".chart{display:block;width:100%;min-width:40rem;font:12px system-ui,sans-serif}"
    ".chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}"
    ".chart .strong{font-weight:700}.chart .axis{stroke:var(--rule);stroke-width:1}"
    ".chart .axis.tick{stroke:var(--ink)}"
    ".chart .one{fill:var(--one)}.chart .two{fill:var(--two)}.chart .three{fill:var(--three)}"
    ".chart .fair{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 3}"
    ".chart .mark{stroke:var(--bad);stroke-width:1.5}.chart .span{fill:var(--bad)}"
    ".chart .span.warning{fill:var(--warn)}.chart .span.note{fill:var(--note)}"
    ".chart .mark.warning{stroke:var(--warn)}.chart .mark.note{stroke:var(--note)}"
    ".chart .wire{fill:none;stroke:var(--one);stroke-width:1.8}"
    ".chart .wire.two{stroke:var(--two);stroke-dasharray:7 3}"
    ".chart .wire.three{stroke:var(--three);stroke-dasharray:2 3}"
    ".chart .wire.four{stroke:var(--ink);stroke-dasharray:9 3 2 3}"
    ".chart .cell{stroke:var(--rule);stroke-width:.5}"
    ".chart .none{fill:none}"
    ".chart .box{fill:var(--one);stroke:var(--ink);stroke-width:1}"
    ".chart .whisker{stroke:var(--ink);stroke-width:1.2}"
)
STYLE: Final = (
    f":root{{{LIGHT}color-scheme:light dark}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}"
    "header,main,footer{max-width:72em;margin:0 auto;padding:0 1.2em}"
    "h1{font-size:1.5em;margin:.8em 0 .2em;overflow-wrap:anywhere}"
    "h2{font-size:1.2em;margin:2em 0 .4em;border-bottom:1px solid var(--rule)}"
    "h3{font-size:1em;margin:1.2em 0 .3em}"
    "p,li,dd,figcaption,summary{overflow-wrap:anywhere}"
    "p{margin:.4em 0}.soft,footer,figcaption{color:var(--soft)}"
    "footer p{font-size:.85em}.lead{font-size:1.1em}"
    ".bad{color:var(--bad)}.warn{color:var(--warn)}.good{color:var(--three)}"
    ".cold{color:var(--one)}"
    "ol.findings{padding:0;list-style:none}"
    "ol.findings>li{border-left:.35em solid var(--note);background:var(--panel);"
    "padding:.5em .9em;margin:.7em 0}"
    "ol.findings>.critical{border-color:var(--bad)}ol.findings>.warning{border-color:var(--warn)}"
    ".critical .mark{color:var(--bad)}.warning .mark{color:var(--warn)}"
    ".note .mark{color:var(--note)}"
    ".mark{font-weight:700}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1em;margin:.4em 0}"
    "dt{color:var(--soft)}dd{margin:0}"
    ".wide{overflow-x:auto;max-width:100%}"
    ".wide:focus-visible{outline:2px solid var(--note);outline-offset:2px}"
    "table{border-collapse:collapse;font-size:.85em;font-variant-numeric:tabular-nums;"
    "margin:.5em 0}"
    "th{color:var(--soft);font-weight:600;text-align:left;vertical-align:bottom;"
    "border-bottom:1px solid var(--rule)}"
    "th,td{padding:.2em .7em .2em 0;white-space:nowrap}td{vertical-align:top}"
    "td.fold{white-space:normal;min-width:14em;overflow-wrap:anywhere}"
    "th.n,td.n{text-align:right}tbody tr:nth-child(even){background:var(--panel)}"
    ".bars{font-family:ui-monospace,monospace;white-space:pre}"
    "figure{margin:1.4em 0}details{margin:.3em 0}summary{cursor:pointer}"
    "a{color:var(--note)}footer{margin:3em auto 2em}"
    f"{CHART}"
    "@media print{@page{margin:14mm}body{font-size:10pt}.chart{min-width:0}"
    ".wide{overflow:visible}h2,h3{break-after:avoid}"
    "figure,tr,ol.findings>li{break-inside:avoid}td:not(.n),th{white-space:normal}"
    "details::details-content{content-visibility:visible;display:block}table{font-size:8pt}"
    "*{print-color-adjust:exact}}"
)


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


# A chart: its picture and the numbers in it.

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
            "<tr>" + "".join(_heat_cell(value) for value in row) + "</tr>" for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _heat_cell(value: Value) -> str:
    if value is None:
        return "<td>?</td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f'<td class="n">{text}</td>'


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
