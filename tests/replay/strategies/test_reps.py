"""REPS against a plain model of the paper's algorithm, with lists instead of rings."""

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model.labels import ACKED, DRAWS, MARKED, TIMEOUT, draw
from rocescope.replay.strategies import reps as kernels

EVS, SEED, FIRST, FREEZE = 64, 7, 3, 1_000


class PlainReps:
    """The last 8 good EVs in the order they came, each with whether it may still be used."""

    def __init__(self) -> None:
        self.entries: list[list[int]] = []  # [ev, valid], oldest first
        self.turn = 0
        self.explore, self.frozen, self.until = FIRST, False, 0

    def select(self, random_ev) -> int:
        if self.explore or not self.entries:
            self.explore = max(0, self.explore - 1)
            return random_ev()
        for entry in self.entries:
            if entry[1]:
                entry[1] = 0
                return entry[0]
        if not self.frozen:
            return random_ev()
        entry = self.entries.pop(0)  # its turn comes again after all others
        self.entries.append(entry)
        return entry[0]

    def feedback(self, ev: int, what: int, now: int) -> None:
        if what == ACKED:
            if len(self.entries) == 8:
                self.entries.pop(0)
            self.entries.append([ev, 1])
            if self.frozen and now > self.until:
                self.frozen, self.explore = False, kernels.EXPLORE_AFTER
        elif what == TIMEOUT and not self.frozen and not self.explore:
            self.frozen, self.until = True, now + FREEZE


events = st.lists(
    st.one_of(
        st.just(("send",)),
        st.tuples(st.just("ack"), st.integers(0, EVS - 1)),
        st.tuples(st.just("mark"), st.integers(0, EVS - 1)),
        st.tuples(st.just("timeout"), st.integers(0, EVS - 1)),
        st.tuples(st.just("wait"), st.integers(1, 2_000)),
    ),
    max_size=80,
)


@pytest.mark.thorough
@examples(60)
@given(events)
def test_ring(steps) -> None:
    state, _ = kernels.reps(1, SEED, 1, EVS, FIRST, FREEZE)
    plain, now = PlainReps(), 0
    for step in steps:
        if step[0] == "send":
            before = int(state.rows[0, DRAWS])

            def random_ev(count: int = before) -> int:
                copy = state._replace(rows=state.rows.copy())
                copy.rows[0, DRAWS] = count
                return int(draw(copy, 0, EVS))

            expected = plain.select(random_ev)
            assert kernels.select(state, 0, 1, now) == expected
        elif step[0] == "wait":
            now += step[1]
        else:
            what = {"ack": ACKED, "mark": MARKED, "timeout": TIMEOUT}[step[0]]
            kernels.feedback(state, 0, step[1], what, now)
            plain.feedback(step[1], what, now)


def test_the_last_eight_good_ones_in_turn_and_again_when_frozen() -> None:
    state, _ = kernels.reps(1, SEED, 1, 1 << 16, 0, FREEZE)
    for ev in range(9):
        kernels.feedback(state, 0, ev, ACKED, 0)
    kernels.feedback(state, 0, 50_000, MARKED, 0)  # never recycled

    def sent(count: int, now: int) -> list[int]:
        return [int(kernels.select(state, 0, 1, now)) for _ in range(count)]

    assert sent(8, 0) == list(range(1, 9))  # the ninth overwrote the first
    assert not set(sent(4, 0)) & set(range(9))  # used up: random
    kernels.feedback(state, 0, 3, TIMEOUT, 10)
    assert sent(20, 10) == [1, 2, 3, 4, 5, 6, 7, 8] * 2 + [1, 2, 3, 4]
    kernels.feedback(state, 0, 70, ACKED, 10 + FREEZE)  # not yet over
    assert 70 in sent(1, 10 + FREEZE)
    assert set(sent(16, 10 + FREEZE)) <= {*range(1, 9), 70}
    kernels.feedback(state, 0, 71, ACKED, 11 + FREEZE)
    explored = sent(kernels.EXPLORE_AFTER, 11 + FREEZE)
    assert not set(explored) & {*range(9), 70, 71}
    assert sent(1, 11 + FREEZE) == [71]


def test_an_ev_leaves_by_a_free_port() -> None:
    state, _ = kernels.reps(1, SEED, 4, EVS, FIRST)
    for mask in range(1, 16):
        assert mask >> int(kernels.select(state, 0, mask, 0)) % 4 & 1
    assert kernels.select(state, 0, 0, 0) == -1
