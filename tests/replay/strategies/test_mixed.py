"""Mixed: EVs of unmarked packets first, against a plain model on top of the bitmap."""

from __future__ import annotations

from collections import deque

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model.labels import ACKED, MARKED, TIMEOUT, TRIMMED
from rocescope.replay.strategies import bitmap as plain
from rocescope.replay.strategies import mixed as kernels

EVS = 8


@pytest.mark.thorough
@examples(60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, EVS - 1)), max_size=80))
def test_stored_values_first_then_those_of_the_bitmap(steps: list[tuple[int, int]]) -> None:
    state, _ = kernels.mixed(1, 3, 1, EVS)
    other, _ = plain.bitmap(1, 3, 1, EVS)
    stored: deque[int] = deque(maxlen=EVS)
    for kind, ev in steps:
        if kind == 0:
            expected = stored.popleft() if stored else plain.select(other, 0, 1, 0)
            assert kernels.select(state, 0, 1, 0) == expected
        else:
            what = (0, ACKED, MARKED, TRIMMED, TIMEOUT)[kind]
            kernels.feedback(state, 0, ev, what, 0)
            if what == ACKED:
                stored.append(ev)
            else:
                plain.feedback(other, 0, ev, what, 0)
        assert state.table[0, :EVS].tolist() == other.table[0].tolist()


def test_a_stored_value_waits_for_its_port() -> None:
    state, _ = kernels.mixed(1, 3, 2, EVS)
    kernels.feedback(state, 0, 5, ACKED, 0)
    assert kernels.select(state, 0, 0b01, 0) % 2 == 0
    assert kernels.select(state, 0, 0b10, 0) == 5
