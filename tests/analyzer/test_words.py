"""Numbers with units, nouns and names from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.words import choices, duration, noun, printable, scaled, short


@given(st.text())
def test_nothing_in_a_name_steers_a_terminal(name: str) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert len(shown) == len(name)
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("ecpm", "did you mean ecmp? There are ecmp, ring-allreduce"),
        ("ring", "did you mean ring-allreduce? There are ecmp, ring-allreduce"),
        ("star", "there are ecmp, ring-allreduce"),
        ("", "there are ecmp, ring-allreduce"),
    ],
)
def test_the_name_like_a_mistyped_one_comes_first(wrong: str, text: str) -> None:
    assert choices(wrong, ("ecmp", "ring-allreduce")) == text


def test_nouns() -> None:
    assert [noun(n, "flow") for n in (0, 1, 2, None)] == ["flows", "flow", "flows", "flows"]
    assert noun(2, "entry", "entries") == "entries"


@pytest.mark.parametrize(
    ("value", "text"),
    [(12, "12 B"), (999.4, "999 B"), (999.6, "1.00 kB"), (47.9e9, "47.9 GB"), (2e18, "2000 PB")],
)
def test_scaled(value: float, text: str) -> None:
    assert scaled(value, "B") == text


@pytest.mark.parametrize(
    ("ns", "text", "without_zeros"),
    [
        (850, "850 ns", "850 ns"),
        (999.9, "1.00 us", "1 us"),
        (12_000, "12.0 us", "12 us"),
        (310_000_000, "310 ms", "310 ms"),
        (1_200_000_000, "1.20 s", "1.2 s"),
        (250_000_000_000, "4 min 10 s", "4 min 10 s"),
        (10_000_000_000_000, "2.8 h", "2.8 h"),
    ],
)
def test_durations(ns: float, text: str, without_zeros: str) -> None:
    assert duration(ns) == text
    assert short(text) == without_zeros
