"""Where the columns of a table stay when there is little room."""

from __future__ import annotations

import pytest
from tui_driver import in_app

from rocescope.tui.widgets.grid import Grid, GridColumn

COLUMNS = (
    GridColumn("a", "A", 10, grows=True, most=15),
    GridColumn("b", "LATE %", 6, True),
    GridColumn("c", "C", 10, priority=1, grows=True),
)


@pytest.mark.parametrize(
    ("width", "widths"),
    [
        (31, (10, 6, 10)),  # 2 before the cells, 1 behind each
        (30, (15, 6, 0)),  # C has no room; A takes what it can use
        (35, (12, 6, 12)),
        (51, (15, 6, 25)),
    ],
)
def test_columns_share_the_room_up_to_what_they_can_use(width, widths):
    grid = Grid(COLUMNS)
    assert in_app(grid, width, lambda: tuple(grid.width_of(key) for key in "abc")) == widths


def test_the_sorted_column_is_marked_though_its_title_is_long():
    grid = Grid(COLUMNS)
    grid.sorted_by = "b"
    assert "LATE%▼" in in_app(grid, 40, lambda: grid.render_line(0).text)


def test_lines_of_an_empty_table():
    grid = Grid(COLUMNS)
    grid.empty = "first\nsecond"
    seen = in_app(grid, 40, lambda: [grid.render_line(y).text.strip() for y in (2, 3)])
    assert seen == ["first", "second"]
