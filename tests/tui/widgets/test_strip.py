"""A distribution on one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocescope.tui.widgets.strip import Axis, strip

QUANTILES = {"p5": 10.0, "p25": 30.0, "p50": 50.0, "p75": 70.0, "p95": 90.0}


def test_marks_are_where_their_values_are():
    line = strip(Axis(0, 100, 101), 2, 98, QUANTILES, {"C": 40.0})
    assert len(line) == 101
    wanted = {2: "├", 5: "─", 10: "▒", 30: "▓", 40: "C", 50: "█", 69: "▓", 90: "▒", 98: "┤"}
    assert {at: line[at] for at in wanted} == wanted
    assert line[0] == "·" and line[99] == " "


def test_one_value():
    line = strip(Axis(7, 7, 20), 7, 7, dict.fromkeys(QUANTILES, 7.0))
    assert line[0] == "█" and "┤" not in line


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(1, 200))
def test_every_value_has_a_column(low, high, value, width):
    axis = Axis(min(low, high), max(low, high), width)
    assert 0 <= axis.place(value) < axis.width
    assert axis.place(axis.low) == 0


def test_numbers_below_their_columns():
    ticks = Axis(1, 2, 41).ticks()
    assert [ticks[at : at + 4] for at in (0, 10, 20, 30, 40)] == [
        "1.00", "1.25", "1.50", "1.75", "2.00",
    ]  # fmt: skip
