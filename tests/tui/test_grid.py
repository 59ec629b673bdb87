"""Where the columns of a table stay when there is little room."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from captures import data
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Region
from textual.widget import Widget
from tui_driver import in_app, settled

from rocescope.tui.app import RocescopeApp
from rocescope.tui.clock import Clock
from rocescope.tui.grid import Grid, GridColumn
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import PathColumns, Snapshot, SourceState
from rocescope.tui.strips import LABEL, Bar, StripAxis, bar_lines, strip
from rocescope.tui.strips import Axis as FlowLinesAxis
from rocescope.tui.topbar import Tabs, TopBar

# Where the columns of a table stay when there is little room.

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


# Bars with their shares.

# Bars with their shares.


def test_bars_and_shares():
    text = bar_lines("EXTENT", [Bar("1", 75), Bar("2 to 3", 25, "p99")], 40, 9, "in packets").plain
    lines = text.splitlines()
    assert lines[0] == "EXTENT" and lines[3] == " in packets"
    assert lines[1].startswith("      1 █") and lines[1].rstrip().endswith("75.0 %")
    assert lines[2].startswith(" 2 to 3 █") and "25.0 % p99" in lines[2]
    assert lines[1].count("█") >= 3 * lines[2].count("█")
    assert all(len(line.rstrip()) <= 40 for line in lines)


def test_no_bar_and_too_many():
    assert "no values" in bar_lines("EXTENT", [], 40, 9).plain
    assert bar_lines("EXTENT", [Bar("1", 0)] * 5, 40, 3).plain.endswith(" and 2 more\n")


# A distribution on one line.

QUANTILES = {"p5": 10.0, "p25": 30.0, "p50": 50.0, "p75": 70.0, "p95": 90.0}


def test_marks_are_where_their_values_are():
    line = strip(StripAxis(0, 100, 101), 2, 98, QUANTILES, {"C": 40.0})
    assert len(line) == 101
    wanted = {2: "├", 5: "─", 10: "▒", 30: "▓", 40: "C", 50: "█", 69: "▓", 90: "▒", 98: "┤"}
    assert {at: line[at] for at in wanted} == wanted
    assert line[0] == "·" and line[99] == " "


def test_one_value():
    line = strip(StripAxis(7, 7, 20), 7, 7, dict.fromkeys(QUANTILES, 7.0))
    assert line[0] == "█" and "┤" not in line


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(1, 200))
def test_every_value_has_a_column(low, high, value, width):
    axis = StripAxis(min(low, high), max(low, high), width)
    assert 0 <= axis.place(value) < axis.width
    assert axis.place(axis.low) == 0


def test_numbers_below_their_columns():
    ticks = StripAxis(1, 2, 41).ticks()
    assert [ticks[at : at + 4] for at in (0, 10, 20, 30, 40)] == [
        "1.00", "1.25", "1.50", "1.75", "2.00",
    ]  # fmt: skip


# The time axis of strips.


@pytest.mark.parametrize(
    ("length_ns", "columns", "labels"),
    [
        (10 * 10**9, 50, ["0 s", "5 s", "10 s"]),
        (1_250_000, 60, ["0.0 ms", "0.5 ms", "1.0 ms"]),
        (900, 70, ["0.0 us", "0.2 us", "0.4 us", "0.6 us", "0.8 us"]),
    ],
)
def test_numbers_are_round_and_under_their_columns(length_ns, columns, labels):
    line = FlowLinesAxis(1_000, length_ns, columns).numbers(Clock(1_000)).plain[LABEL + 1 :]
    assert [label.strip() for label in line.split("╵")[1:]] == labels
    step = line.index("╵", 1)
    assert step == round(columns * float(labels[1].split()[0]) * SCALES[labels[1][-2:]] / length_ns)


SCALES = {" s": 1e9, "ms": 1e6, "us": 1e3}


@given(st.integers(1, 10**13), st.integers(10, 200), st.integers(0, 10**13))
def test_every_axis_has_numbers_that_fit(length_ns, columns, before):
    line = FlowLinesAxis(before, length_ns, columns).numbers(Clock(0)).plain
    assert len(line) <= columns + 2 * LABEL + 2
    assert line.count("╵") <= columns


def test_an_interval_is_between_its_times():
    axis = FlowLinesAxis(0, 100, 50)
    assert axis.interval("x", 20, 60).plain[LABEL + 1 :] == " " * 10 + "├" + "─" * 19 + "┤"
    assert axis.interval("x", 90, None).plain[LABEL + 1 :] == " " * 45 + "├───▶"
    assert axis.interval("x", 20, 20).plain[LABEL + 1 :] == " " * 10 + "┃"
    assert axis.interval("x", -50, 400).plain[LABEL + 1 :] == "├" + "─" * 48 + "┤"


# What line 1 says where there is little room.

SOURCE = SourceState(
    "a_capture_with_a_long_name.pcap.gz",
    "capture",
    running=False,
    frames=30_000,
    truncated=25_362,
    packets_per_second=27_388.0,
    bits_per_second=220e6,
)


@pytest.mark.parametrize(
    ("width", "whole", "says"),
    [
        (200, True, ("27,388 pkt/s", "220 Mb/s", "drops unknown", "25,362 truncated")),
        (100, True, ("220 Mb/s", "drops ?", "25,362 cut")),
        (80, False, ("220 Mb/s", "drops ?", "25,362 cut")),
    ],
)
def test_line_1_says_it_in_fewer_words_before_it_says_less(width, whole, says):
    bar = TopBar()

    def look():
        bar.show(Snapshot(SOURCE), PathColumns.none(), False, "", "")
        return str(bar.render())

    line = in_app(bar, width, look)
    assert len(line) <= width and "paths inferred" in line
    assert all(part in line for part in says)
    assert (SOURCE.name in line) == whole


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        replace(SOURCE, dropped=1_234, undecodable=77),
        replace(SOURCE, kind="live", running=True, dropped=0, recording="night.pcapng"),
    ],
)
def test_what_says_how_far_data_is_to_be_trusted_stays(source):
    bar = TopBar()

    def look():
        bar.show(Snapshot(source), PathColumns.none(), False, "1.25 s to 2.50 s", "")
        return str(bar.render())

    line = in_app(bar, 80, look)
    drops = "drops ?" if source.dropped is None else "dropped"
    bad = ["77 undec"] if source.undecodable else ["25,362 cut"]
    assert len(line) <= 80
    assert all(part in line for part in ("1.25 s to 2.50 s", drops, "paths inferred", *bad)), line


@pytest.mark.parametrize(
    ("done", "total", "says"), [(46, 100, "■ stopped at 46 %"), (46, None, "■ stopped early")]
)
def test_what_was_not_read_to_its_end_is_said(done, total, says):
    bar = TopBar()
    source = replace(SOURCE, stopped_early=True, bytes_done=done, bytes_total=total)

    def look():
        bar.show(Snapshot(source), PathColumns.none(), False, "", "")
        return str(bar.render())

    assert says in in_app(bar, 80, look)


@pytest.mark.parametrize(
    ("width", "says"), [(80, "A Agg"), (120, "A Aggr"), (200, "A Aggregation")]
)
def test_a_further_screen_stands_in_the_line_while_it_is_shown(width, says):
    tabs = Tabs()

    def look(screen):
        tabs.show(screen, {})
        return str(tabs.render())

    shown, other = in_app(tabs, width, lambda: (look("aggregation"), look("ranks")))
    assert says in shown and "K Ran" not in shown
    assert "K Ran" in other and says not in other
    assert max(len(shown), len(other)) <= width
