"""Where the columns of a table stay when there is little room."""

from __future__ import annotations

import asyncio
import random

import pytest
from captures import data
from textual.geometry import Region
from textual.widget import Widget
from tui_driver import in_app, settled

from rocescope.tui.app import RocescopeApp
from rocescope.tui.grid import Grid, GridColumn
from rocescope.tui.session.session import Session

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


def test_long_lines_of_an_empty_table_are_continued():
    grid = Grid(COLUMNS)
    grid.empty = "  r  runs every strategy on a fabric\nlast"
    seen = in_app(grid, 30, lambda: [grid.render_line(y).text.rstrip() for y in (2, 3, 4)])
    assert seen == ["    r  runs every strategy on", "       a fabric", "  last"]


def rendered(strips, console):
    """What a terminal gets, line by line."""
    return [strip.render(console) for strip in strips]


def as_textual_does(grid):
    """The lines of the whole table in Textual's own way, made anew."""
    grid._styles_cache.clear()
    return Widget.render_lines(grid, grid.size.region)


@pytest.mark.thorough
@pytest.mark.parametrize("no_colour", [False, True])
def test_lines_are_those_that_textual_would_paint(no_colour, monkeypatch):
    """After any keys, those kept from earlier paints too."""
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    keys = ("j", "k", "pagedown", "G", "home", "s", "S", "a", "p", "2", "4", "5", "6", "space")
    choose = random.Random(5)

    async def run():
        app = RocescopeApp(Session.open([str(data("i03_write_reorder5_AtoB"))]))
        seen = 0
        async with app.run_test(size=(100, 14)) as pilot:
            await settled(app, pilot)
            for _ in range(40):
                await pilot.press(choose.choice(keys))
                await settled(app, pilot)
                for grid in app.screen.query(Grid):
                    kept = grid.render_lines(grid.size.region)
                    assert rendered(kept, app.console) == rendered(
                        as_textual_does(grid), app.console
                    )
                    seen += len(kept)
            assert seen > 100
            await pilot.press("2")
            await settled(app, pilot)
            grid = app.screen.query_one("#flows", Grid)
            part = grid.render_lines(Region(3, 1, 7, 2))
            assert [strip.text for strip in part] == [
                strip.text[3:10] for strip in grid.render_lines(grid.size.region)[1:3]
            ]

    asyncio.run(run())
