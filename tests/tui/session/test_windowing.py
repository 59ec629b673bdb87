"""The time window never leaves the capture."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocescope.tui.session.windowing import around, moved, scaled

WHOLE = (1_000_000_000, 9_000_000_000)


def test_by_example():
    assert scaled(None, WHOLE, 0.5) == (1_000_000_000, 5_000_000_000)
    assert moved((1_000_000_000, 5_000_000_000), WHOLE, 0.5) == (3_000_000_000, 7_000_000_000)
    assert moved((6_000_000_000, 8_000_000_000), WHOLE, 5) == (7_000_000_000, 9_000_000_000)
    assert scaled((2_000_000_000, 7_000_000_000), WHOLE, 2) is None
    assert around(None, WHOLE, 4.0) == (4_000_000_000, 6_000_000_000)


@given(st.integers(*WHOLE), st.integers(0, 4_000_000_000), st.floats(-10, 10), st.floats(0.01, 10))
def test_it_stays_inside(low, length, by, factor):
    window = (min(low, WHOLE[1] - length), min(low, WHOLE[1] - length) + length)
    window = (max(window[0], WHOLE[0]), window[1])
    shifted = moved(window, WHOLE, by)
    assert shifted[1] - shifted[0] == window[1] - window[0]
    assert WHOLE[0] <= shifted[0] and shifted[1] <= WHOLE[1]
    resized = scaled(window, WHOLE, factor)
    assert resized is None or (WHOLE[0] <= resized[0] and resized[1] <= WHOLE[1])
