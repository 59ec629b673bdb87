"""The time axis of strips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.tui.widgets.flow_lines import LABEL, Axis


@pytest.mark.parametrize(
    ("length_ns", "columns", "labels"),
    [
        (10 * 10**9, 50, ["0 s", "5 s", "10 s"]),
        (1_250_000, 60, ["0.0 ms", "0.5 ms", "1.0 ms"]),
        (900, 70, ["0.0 us", "0.2 us", "0.4 us", "0.6 us", "0.8 us"]),
    ],
)
def test_numbers_are_round_and_under_their_columns(length_ns, columns, labels):
    line = Axis(1_000, length_ns, columns).numbers(1_000).plain[LABEL + 1 :]
    assert [label.strip() for label in line.split("╵")[1:]] == labels
    step = line.index("╵", 1)
    assert step == round(columns * float(labels[1].split()[0]) * SCALES[labels[1][-2:]] / length_ns)


SCALES = {" s": 1e9, "ms": 1e6, "us": 1e3}


@given(st.integers(1, 10**13), st.integers(10, 200), st.integers(0, 10**13))
def test_every_axis_has_numbers_that_fit(length_ns, columns, before):
    line = Axis(before, length_ns, columns).numbers(0).plain
    assert len(line) <= columns + 2 * LABEL + 2
    assert line.count("╵") <= columns


def test_an_interval_is_between_its_times():
    axis = Axis(0, 100, 50)
    assert axis.interval("x", 20, 60).plain[LABEL + 1 :] == " " * 10 + "├" + "─" * 19 + "┤"
    assert axis.interval("x", 90, None).plain[LABEL + 1 :] == " " * 45 + "├───▶"
    assert axis.interval("x", 20, 20).plain[LABEL + 1 :] == " " * 10 + "┃"
    assert axis.interval("x", -50, 400).plain[LABEL + 1 :] == "├" + "─" * 48 + "┤"
