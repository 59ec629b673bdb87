"""Bars with their shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.tui.strips import LABEL, Bar, StripAxis, bar_lines, strip
from rocescope.tui.strips import Axis as FlowLinesAxis

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
    line = FlowLinesAxis(1_000, length_ns, columns).numbers(1_000).plain[LABEL + 1 :]
    assert [label.strip() for label in line.split("╵")[1:]] == labels
    step = line.index("╵", 1)
    assert step == round(columns * float(labels[1].split()[0]) * SCALES[labels[1][-2:]] / length_ns)


SCALES = {" s": 1e9, "ms": 1e6, "us": 1e3}


@given(st.integers(1, 10**13), st.integers(10, 200), st.integers(0, 10**13))
def test_every_axis_has_numbers_that_fit(length_ns, columns, before):
    line = FlowLinesAxis(before, length_ns, columns).numbers(0).plain
    assert len(line) <= columns + 2 * LABEL + 2
    assert line.count("╵") <= columns


def test_an_interval_is_between_its_times():
    axis = FlowLinesAxis(0, 100, 50)
    assert axis.interval("x", 20, 60).plain[LABEL + 1 :] == " " * 10 + "├" + "─" * 19 + "┤"
    assert axis.interval("x", 90, None).plain[LABEL + 1 :] == " " * 45 + "├───▶"
    assert axis.interval("x", 20, 20).plain[LABEL + 1 :] == " " * 10 + "┃"
    assert axis.interval("x", -50, 400).plain[LABEL + 1 :] == "├" + "─" * 48 + "┤"
