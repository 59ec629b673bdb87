"""Penalties of the Ultra Ethernet bitmap against a plain model."""

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model.labels import DRAWS, LOST, MARKED, TIMEOUT, TRIMMED, draw
from rocescope.replay.strategies import bitmap as kernels

EVS = 8


class PlainBitmap:
    def __init__(self) -> None:
        self.penalty = [0] * EVS
        self.position = self.permutation = 0

    def select(self, random) -> int:
        lowered, fallback = False, -1
        for _ in range(EVS):
            if self.position == 0:
                self.permutation = random()
            ev = self.position ^ self.permutation
            self.position = (self.position + 1) % EVS
            if not self.penalty[ev]:
                return ev
            if not lowered:
                self.penalty[ev] -= 1
                lowered = True
            if fallback < 0:
                fallback = ev
        return fallback


@pytest.mark.thorough
@examples(60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, EVS - 1)), max_size=80))
def test_penalties(steps) -> None:
    state, _ = kernels.bitmap(1, 3, 1, EVS)
    plain = PlainBitmap()
    for kind, ev in steps:
        if kind == 0:
            copy = state._replace(rows=state.rows.copy())
            assert kernels.select(state, 0, 1, 0) == plain.select(lambda c=copy: draw(c, 0, EVS))
        else:
            what = (0, MARKED, TRIMMED, LOST, TIMEOUT)[kind]
            kernels.feedback(state, 0, ev, what, 0)
            plain.penalty[ev] = min(15, plain.penalty[ev] + (0, 1, 4, 15, 15)[kind])
    assert state.table[0].tolist() == plain.penalty
    assert state.rows[0, DRAWS] >= 0
