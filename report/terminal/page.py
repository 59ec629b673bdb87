"""The page of a report on a terminal: its console, paragraphs, sections and tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TextIO, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from ...analyzer.words import printable
from .. import human
from ..human import ASCII, UNICODE, UNKNOWN

ColorWhen: TypeAlias = Literal["auto", "always", "never"]
MOST_WARNINGS = 20
_KEPT = 4
"""Leading columns of a table that are shown on the narrowest terminal."""
_FOLDED = 16
"""Least width of text on several lines."""
_USUAL_WIDTH, _NARROWEST, _WIDEST = 80, 20, 1000
"""In columns; rich draws the frames of help forever on a few."""


class SafeConsole(Console):
    """A console on which no text steers the terminal: only its own styles do.

    Names from packets, files and processes reach it in any text. BrokenPipeError is raised to the
    command line.
    """

    def __init__(self, **options: Any) -> None:
        """Options of rich; the size is never that of the environment, which may be any text."""
        sizes = ("COLUMNS", "LINES")
        environment = {name: text for name, text in os.environ.items() if name not in sizes}
        super().__init__(**options, markup=False, emoji=False, _environ=environment)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a renderable, with printable characters only."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control is not None or text.replace("\n", "").isprintable():
                yield segment
            else:
                yield Segment("\n".join(map(printable, text.split("\n"))), style)

    def on_broken_pipe(self) -> None:
        raise  # rich calls this while it handles the BrokenPipeError


def console_for(stream: TextIO, color: ColorWhen) -> Console:
    """A console on `stream`: plain text unless it is a terminal or colour is requested."""
    width = _columns_of(stream)
    if color == "never":
        return SafeConsole(file=stream, width=width, color_system=None, highlight=False)
    if color == "always":
        return SafeConsole(
            file=stream,
            width=width,
            force_terminal=True,
            no_color=False,
            color_system="standard",
            highlight=False,
        )
    return SafeConsole(file=stream, width=width, highlight=False)


def page_on(stream: TextIO, color: ColorWhen = "auto") -> Page:
    """The page that is `stream`."""
    return Page(console_for(stream, color))


def _columns_of(stream: TextIO) -> int:
    """Columns of a terminal, or those that the environment asks for."""
    if stream.isatty():
        import shutil

        columns = shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns
    else:
        asked = os.environ.get("COLUMNS", "")
        columns = int(asked) if asked.isdecimal() and len(asked) <= 4 else 0
    return max(_NARROWEST, min(columns or _USUAL_WIDTH, _WIDEST))


class Page:
    """A console with the parts that all reports share."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.glyphs = UNICODE if console.encoding.lower().startswith("utf") else ASCII
        self.unknowns = False
        """Whether a table has an unknown value."""

    def line(self, text: str, style: str = "") -> None:
        """One line, however long: names in it hold no line breaks of their own."""
        self.console.print(Text(printable(text), style), soft_wrap=True)

    def say(self, text: str, style: str = "", indent: int = 0, mark: str = "") -> None:
        """A paragraph, indented; the mark is in the margin of its first line."""
        for line in self.wrapped(text, indent):
            line.rstrip()
            self.line(f"{mark:{indent}}{line.plain}", style)
            mark = ""

    def wrapped(self, text: str, indent: int) -> Sequence[Text]:
        """The lines of a paragraph."""
        width = max(_NARROWEST // 2, self.console.width - indent)
        return list(Text(printable(text)).wrap(self.console, width))

    def warn(self, lines: Iterable[str], most: int = MOST_WARNINGS) -> None:
        """Warnings, a paragraph each; of those beyond `most` their number."""
        listed = list(lines)
        for line in listed[:most]:
            self.say(f"{self.glyphs.warning} {line}", "yellow")
        self.left_out(len(listed) - most, "warning")

    def left_out(self, left: int, what: str, plural: str | None = None) -> None:
        """How many items of a list only the JSON has, if any."""
        if left > 0:
            count = human.counted(left, what, plural)
            self.say(f"... {count} not shown: --format json has all", "dim", 2)

    def gap(self) -> None:
        """An empty line."""
        self.console.print()

    def section(self, title: str, text: str = "", good: bool = False) -> None:
        """A heading with its sentence."""
        self.gap()
        heading = Text(printable(title).upper(), "bold")
        if good:
            heading.append(f"  {self.glyphs.good}", "green")
        self.console.print(heading)
        if text:
            self.say(text)

    def draw(self, fill: Callable[[Table], None], drop: bool = False) -> None:
        """Print a table, with wide gaps between its columns where they fit.

        `drop` omits columns without any value, and columns at the right that do not fit:
        a truncated number misleads. Without it these columns follow in a second table.
        """
        filled = new_table(2)
        fill(filled)
        columns = [c for c in filled.columns if not drop or any(cell != "-" for cell in c.cells)]
        table = with_columns(filled, columns)
        rest: Sequence[Column] = ()
        widths = [self._width(column) for column in table.columns]
        fits = sum(widths) + 2 * (len(widths) - 1) <= self.console.width
        if not fits:
            table.padding = (0, 1, 0, 0)
            names = next((n for n, c in enumerate(columns) if c.justify != "left"), len(columns))
            least = _KEPT if drop else names + 1
            if not drop:
                # Text on several lines needs less than its own width.
                folded = zip(columns, widths, strict=True)
                widths = [w if column.no_wrap else min(w, _FOLDED) for column, w in folded]
            kept = len(widths)
            while kept > least and sum(widths[:kept]) + kept - 1 > self.console.width:
                kept -= 1
            if kept < len(widths):
                table = with_columns(table, columns[:kept])
                rest = () if drop else [*columns[:names], *columns[kept:]]
        self.unknowns |= any(str(cell) == UNKNOWN for c in table.columns for cell in c.cells)
        lines = _lines(table, widths) if fits else None
        if lines is None:
            self.console.print(table)
        else:
            self.console.print(lines, soft_wrap=True)
        if rest:
            self.draw(lambda second: _fill(second, rest))

    def _width(self, column: Column) -> int:
        """Terminal width of a column without wrapped cells."""
        unlimited = self.console.options.update(max_width=10_000)
        return max(
            cell_len(str(cell))
            if isinstance(cell, str | Text)
            else Measurement.get(self.console, unlimited, cell).maximum
            for cell in (column.header, *column.cells)
        )

    def more(self, left: int, what: str, plural: str | None = None) -> None:
        """How many rows or lines --top leaves out, if any."""
        if left > 0:
            self.say(f"... {human.counted(left, what, plural)} not shown (--top)", "dim", 2)


def new_table(gap: int) -> Table:
    """An empty table: no lines, a dim heading, `gap` spaces between columns."""
    return Table(
        box=None, header_style="dim", padding=(0, gap, 0, 0), pad_edge=False, show_edge=False
    )


def with_columns(table: Table, columns: Sequence[Column]) -> Table:
    """The table with only these columns; no text in a cell breaks its line."""
    narrower = new_table(table.padding[1])
    _fill(narrower, columns)
    return narrower


def _fill(table: Table, columns: Sequence[Column]) -> None:
    """Add columns with their cells to an empty table."""
    for c in columns:
        table.add_column(
            c.header, justify=c.justify, style=c.style, no_wrap=c.no_wrap, overflow=c.overflow
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(_cell, cells))


def _cell(content: RenderableType) -> RenderableType:
    """A `str` as text: rich would search it for markup whenever it measures or draws it."""
    if isinstance(content, str):
        return Text(content if content.isprintable() else printable(content))
    if isinstance(content, Text) and not content.plain.isprintable():
        content.plain = printable(content.plain)
    return content


def _lines(table: Table, widths: Sequence[int]) -> Text | None:
    """A table without wrapped cells as rich draws it, which takes several times as long; None if
    cells are not texts."""
    gaps = [table.padding[1]] * (len(widths) - 1) + [0]
    lines: list[Text] = []
    for row in zip(*((c.header, *c.cells) for c in table.columns), strict=True):
        line = Text()
        for cell, column, width, gap in zip(row, table.columns, widths, gaps, strict=True):
            if not isinstance(cell, str | Text):
                return None
            begin, room = len(line), width - cell_len(str(cell))
            before = room if column.justify == "right" else 0
            line.append(" " * before).append(cell).append(" " * (room - before + gap))
            line.stylize_before(column.style if lines else table.header_style, begin)
        lines.append(line)
    return Text("\n").join(lines)


def texts(table: Table, *headings: str) -> None:
    """Add columns of texts that stay on one line."""
    for heading in headings:
        table.add_column(heading, no_wrap=True)


def folded(table: Table, *headings: str) -> None:
    """Add columns of texts that may take several lines."""
    for heading in headings:
        table.add_column(heading, overflow="fold")


def numbers(table: Table, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
