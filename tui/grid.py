"""A table that draws only visible rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import NamedTuple, Self, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..analyzer.words import printable
from ..report.human import UNICODE

# The columns of a table: selection, widths and cell texts.

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


class Grid(ScrollView, can_focus=True):
    """Rows of cells with one cursor."""

    COMPONENT_CLASSES = {
        "grid--header",
        "grid--cursor",
        "grid--dim",
        "grid--good",
        "grid--bad",
        "grid--warn",
        "grid--accent",
        "grid--sorted",
        "grid--mark",
        "grid--cold2",
        "grid--cold1",
        "grid--fair",
        "grid--hot1",
        "grid--hot2",
        "grid--hot3",
    }
    BINDINGS = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move_to(0)", show=False),
        Binding("end,G,upper_g", "move_to(-1)", show=False),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)

    class Moved(Message):
        """The cursor moved to another row."""

        def __init__(self, grid: Grid, row: int) -> None:
            super().__init__()
            self.grid, self.row = grid, row

        @property
        def control(self) -> Grid:
            return self.grid

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, Grid.Moved) and message.grid is self.grid

    class Chosen(Moved):
        """A row was clicked twice."""

    class HeaderClicked(Message):
        """A column's title was clicked."""

        def __init__(self, grid: Grid, key: str) -> None:
            super().__init__()
            self.grid, self.key = grid, key

        @property
        def control(self) -> Grid:
            return self.grid

    def __init__(self, columns: Sequence[GridColumn], id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.sorted_by = ""
        self.descending = True
        self.empty = ""
        """The text of a table without rows."""
        self.row_count = 0
        self._cells: Callable[[int], Sequence[Cell]] = lambda row: ()
        self._mark: Callable[[int], str] = lambda row: " "
        self._fitting: tuple[int, list[tuple[int, int]]] = (-1, [])
        self._styles: dict[tuple[str, bool], Style] = {}
        self._same_height = False
        self._lines: dict[int, Strip] = {}
        self._shape = (Size(0, 0), 0)
        """Size and first row of `_lines`."""

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()
        self._lines.clear()

    def show(
        self,
        rows: int,
        cells: Callable[[int], Sequence[Cell]],
        mark: Callable[[int], str] | None = None,
    ) -> None:
        """Set the rows; `cells` makes the cells of a row, in the order of all columns."""
        self._same_height = rows == self.row_count and self.virtual_size.height == rows + 1
        self.row_count, self._cells = rows, cells
        if mark is not None:
            self._mark = mark
        self.virtual_size = Size(max(self.size.width, 1), rows + 1)
        self.set_reactive(Grid.cursor, max(0, min(self.cursor, rows - 1)))
        self.refresh()

    def set_columns(self, columns: Sequence[GridColumn]) -> None:
        if tuple(columns) != self.columns:
            self.columns = tuple(columns)
            self._fitting = (-1, [])

    def put_cursor(self, row: int, at_top: bool = False) -> None:
        """Move the cursor without a message; `at_top`: scroll its row to the top."""
        self.set_reactive(Grid.cursor, max(0, min(row, self.row_count - 1)))
        if at_top:  # once the new size is known
            self.call_after_refresh(self.scroll_to, y=self.cursor, animate=False, immediate=True)
        elif self._same_height:  # before the paint, to avoid a second paint
            self._scroll_to_cursor()
        else:
            self.call_after_refresh(self._scroll_to_cursor)
        self.refresh()

    def watch_cursor(self, before: int, now: int) -> None:
        self._scroll_to_cursor()
        for row in (before, now):  # two lines, not the table
            self.refresh(Region(0, row + 1 - int(self.scroll_offset.y), self.size.width, 1))
        if self.row_count:
            self.post_message(self.Moved(self, self.cursor))

    def _scroll_to_cursor(self) -> None:
        height = max(1, self.size.height - 1)
        top = int(self.scroll_offset.y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)

    def action_move(self, rows: int) -> None:
        if self.row_count:
            self.cursor = max(0, min(self.row_count - 1, self.cursor + rows))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_move_to(self, row: int) -> None:
        if self.row_count:
            self.cursor = row % self.row_count

    def on_resize(self, event: events.Resize) -> None:
        self._fitting = (-1, [])
        self.virtual_size = Size(max(event.size.width, 1), self.row_count + 1)
        self.call_after_refresh(self._scroll_to_cursor)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            left = LEFT
            for index, width in self._layout():
                if left <= event.x <= left + width:
                    self.post_message(self.HeaderClicked(self, self.columns[index].key))
                left += width + 1
            return
        row = event.y - 1 + int(self.scroll_offset.y)
        if 0 <= row < self.row_count:
            repeated = row == self.cursor
            self.cursor = row
            if repeated and event.chain > 1:
                self.post_message(self.Chosen(self, row))

    def _layout(self) -> list[tuple[int, int]]:
        """(column, width) of those that fit."""
        width = self.size.width
        if self._fitting[0] != width:
            self._fitting = (width, columns_in(width, self.columns))
        return self._fitting[1]

    @property
    def left_out(self) -> int:
        """Number of columns that do not fit; a table without rows leaves nothing out."""
        return len(self.columns) - len(self._layout()) if self.size.width and self.row_count else 0

    def width_of(self, key: str) -> int:
        """The drawn width of a column; 0 if it does not fit."""
        return next((w for i, w in self._layout() if self.columns[i].key == key), 0)

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        if repaint:
            for region in regions:
                for y in region.line_range:
                    self._lines.pop(y, None)
            if not regions:
                self._lines.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The visible lines with their final styles.

        Textual's default passes every line through borders, opacity and filters, and makes four
        strips of each, which takes twice the time of the lines themselves.
        """
        if self.gutter:
            return super().render_lines(crop)
        shape = (self.size, int(self.scroll_offset.y))
        if shape != self._shape:
            self._shape = shape
            self._lines.clear()
        for y in crop.line_range:
            if y not in self._lines:
                self._lines[y] = self.render_line(y)
        strips = [self._lines[y] for y in crop.line_range]
        left, right = crop.column_span
        full = (left, right) == (0, self.size.width)
        return strips if full else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self._header(width)
        row = y - 1 + int(self.scroll_offset.y)
        if row >= self.row_count:
            lines = _wrapped(self.empty, width - 3) if not self.row_count else []
            text = lines[y - 2] if 2 <= y < 2 + len(lines) else ""
            segments = [Segment(f"  {text}", self._cell_style("dim", False))]
            return _line(segments, 2 + cell_len(text), width, self._cell_style("", False))
        at_cursor = row == self.cursor
        style = self._cell_style
        segments = [
            Segment(self._cursor_glyph() if at_cursor else " ", style("accent", at_cursor)),
            Segment(self._mark(row), style("mark", at_cursor)),
        ]
        cells = self._cells(row)
        for index, cell_width in self._layout():
            cell = cells[index] if index < len(cells) else ""
            if isinstance(cell, list):
                segments += self._pieces(cell, cell_width, at_cursor)
                continue
            text, name = cell if isinstance(cell, tuple) else (cell, "")
            column, text = self.columns[index], printable(text)
            if column.ends and len(text) > cell_width:
                text = UNICODE.shorten(text, cell_width)
            fitted = fit(text, cell_width, column.right)
            segments.append(Segment(f"{fitted} ", style(name, at_cursor)))
        return _line(segments, self._needed(), width, style("", at_cursor))

    def _needed(self) -> int:
        """Width of a line, including cursor and mark."""
        return LEFT + sum(width + 1 for _, width in self._layout())

    def _cursor_glyph(self) -> str:
        """Redraw the cursor, which shows the table with the focus."""
        return "▌" if self.has_focus else "▏"

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _pieces(self, cell: list[tuple[str, str]], width: int, at_cursor: bool) -> list[Segment]:
        """The pieces of one cell and the gap after it."""
        pieces, left = [], width
        for name, run in groupby(cell, itemgetter(1)):  # maps have long runs of one style
            if left <= 0:
                break
            text = printable("".join(part for part, _ in run)[:left])
            pieces.append(Segment(text, self._cell_style(name, at_cursor)))
            left -= cell_len(text)
        return [*pieces, Segment(" " * (left + 1), self._cell_style("", at_cursor))]

    def _cell_style(self, name: str, at_cursor: bool) -> Style:
        """The style of a cell, cached: new styles for all cells would take most of a paint."""
        known = self._styles.get((name, at_cursor))
        if known is None:
            known = self._style("cursor") if at_cursor else self.rich_style
            if name:
                # A muted colour is relative to the background; the partial style lacks that one.
                known += self._style(name, True) + Style(color=self._style(name).color)
            self._styles[name, at_cursor] = known = self._filtered(known)
        return known

    def _header(self, width: int) -> Strip:
        style, marked = self._filtered(self._style("header")), self._filtered(self._style("sorted"))
        arrow = "▼" if self.descending else "▲"
        hidden = self.sorted_by and not self.width_of(self.sorted_by)
        segments = [Segment(f"{arrow} " if hidden else "  ", marked)]
        for index, cell_width in self._layout():
            column = self.columns[index]
            sorted_here = column.key == self.sorted_by
            title = with_arrow(column.title, arrow if sorted_here else "", cell_width)
            title = fit(title, cell_width, column.right)
            segments.append(Segment(f"{title} ", marked if sorted_here else style))
        return _line(segments, self._needed(), width, style)

    def _style(self, name: str, foreground: bool = False) -> Style:
        return self.get_component_rich_style(f"grid--{name}", partial=foreground)

    def _filtered(self, style: Style) -> Style:
        """The style for the terminal: without colours if NO_COLOR is set."""
        segments = [Segment(" ", style)]
        for line_filter in self.get_line_filters():
            segments = line_filter.apply(segments, self.background_colors[1])
        return segments[0].style or style


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text; what a line has no room for is indented further than its begin."""
    wrapped = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 3)
        lines = wrap(line, max(20, width), subsequent_indent=indent, break_on_hyphens=False)
        wrapped += lines or [""]
    return wrapped


def _line(segments: list[Segment], needed: int, width: int, style: Style) -> Strip:
    """Texts side by side, as wide as the table."""
    if needed < width:
        segments.append(Segment(" " * (width - needed), style))
    strip = Strip(segments, max(needed, width))
    return strip.crop(0, width) if needed > width else strip
