"""MRC's EV states against a plain model of the specification's transitions, and its invariants."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.model.labels import (
    LOST,
    MARKED,
    NEVER,
    PORT_MASK,
    PROBE_CLEAN,
    TIMEOUT,
    TRIMMED,
    WAKE,
)
from rocescope.replay.strategies import mrc as kernels
from rocescope.replay.strategies.mrc import ASSUMED_BAD, DENIED, GOOD, SKIP

PLANES, PATHS, ACTIVE = 4, 8, 16
ALL = (1 << PLANES) - 1


def _state_of(state, ev: int) -> int:
    return int(state.table[0, ev]) & 3


def _active(state) -> set[int]:
    return {ev for ev in range(PLANES * PATHS) if state.table[0, ev] & 16}


def _made(**options):
    state, _ = kernels.mrc(1, 9, PLANES, PATHS, ACTIVE, **options)
    return state


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, ALL)),
        st.tuples(
            st.sampled_from([MARKED, TRIMMED, LOST, TIMEOUT, PROBE_CLEAN]),
            st.integers(0, PLANES * PATHS - 1),
        ),
    ),
    max_size=120,
)


@pytest.mark.thorough
@examples(60)
@given(steps)
def test_states_and_invariants(history) -> None:
    state = _made(denied=(3,))
    model = {ev: DENIED if ev == 3 else GOOD for ev in range(PLANES * PATHS)}
    answers = dict.fromkeys(model, 0)
    for what, value in history:
        active = _active(state)
        if what == "send":
            before = {ev for ev in model if model[ev] == SKIP}
            ev = int(kernels.select(state, 0, value, 0))
            if ev >= 0:
                assert value >> ev % PLANES & 1
                assert model[ev] == GOOD or ev in before
                assert ev in active
            after = {e for e in model if _state_of(state, e) == SKIP}
            assert after <= before and len(before - after) <= 1
            for e in before - after:
                model[e] = GOOD
        else:
            kernels.feedback(state, 0, value, what, 0)
            if what in (MARKED, TRIMMED) and model[value] == GOOD:
                model[value] = SKIP
            elif what in (LOST, TIMEOUT) and model[value] in (GOOD, SKIP):
                model[value] = _state_of(state, value)  # BAD, or SKIP at the floor
                assert model[value] in (ASSUMED_BAD, SKIP)
                answers[value] = 0
                if model[value] == ASSUMED_BAD:
                    assert state.rows[0, WAKE] != NEVER
            elif what == PROBE_CLEAN and model[value] == ASSUMED_BAD:
                answers[value] += 1
                if answers[value] == kernels.PROBES_NEEDED:
                    model[value] = GOOD
        assert {ev: _state_of(state, ev) for ev in model} == model
        now_active = _active(state)
        assert len(now_active) == ACTIVE  # a backup of the same plane takes each place
        per_plane = np.bincount([ev % PLANES for ev in now_active], minlength=PLANES)
        assert (per_plane == ACTIVE // PLANES).all()
        usable = sum(model[ev] in (GOOD, SKIP) for ev in now_active)
        assert usable >= ACTIVE // 4


def test_planes_take_turns_whatever_ports_are_free() -> None:
    state = _made()
    counts = np.zeros(PLANES, np.int64)
    rng = np.random.default_rng(1)
    for _ in range(500):
        ev = int(kernels.select(state, 0, int(rng.integers(1, ALL + 1)), 0))
        if ev >= 0:
            counts[ev % PLANES] += 1
        assert counts.max() - counts.min() <= 1
    assert counts.sum() > 100


def test_a_mark_skips_once_and_shares_shrink_but_stay() -> None:
    state = _made()
    marked = next(iter(_active(state)))
    seen = dict.fromkeys(_active(state), 0)
    for _ in range(40 * ACTIVE):
        ev = int(kernels.select(state, 0, ALL, 0))
        seen[ev] += 1
        if ev == marked:
            kernels.feedback(state, 0, ev, MARKED, 0)
    others = [n for ev, n in seen.items() if ev != marked]
    assert 0 < seen[marked] < 0.7 * min(others)


def test_a_mark_costs_one_turn() -> None:
    state = _made()
    plane_0 = {ev for ev in _active(state) if ev % PLANES == 0}  # four of them

    def sent(rounds: int) -> list[int]:
        evs = [int(kernels.select(state, 0, ALL, 0)) for _ in range(PLANES * rounds)]
        return [ev for ev in evs if ev % PLANES == 0]

    assert set(sent(4)) == plane_0
    marked = min(plane_0)
    kernels.feedback(state, 0, marked, MARKED, 0)
    first_turn, second_turn = sent(3), sent(4)
    assert set(first_turn) == plane_0 - {marked}
    assert set(second_turn) == plane_0


def test_a_plane_that_is_out_of_reach_is_not_used() -> None:
    state = _made()
    kernels.feedback(state, 0, ALL & ~2, PORT_MASK, 0)
    used = {int(kernels.select(state, 0, ALL, 0)) % PLANES for _ in range(100)}
    assert used == {0, 2, 3}
    kernels.feedback(state, 0, ALL, PORT_MASK, 0)
    used = {int(kernels.select(state, 0, ALL, 0)) % PLANES for _ in range(100)}
    assert used == {0, 1, 2, 3}


def test_probes_visit_every_bad_ev_once_per_interval() -> None:
    state = _made()
    bad = sorted(_active(state))[:3]
    for ev in bad:
        kernels.feedback(state, 0, ev, LOST, 1_000)
    first = int(state.rows[0, WAKE])
    assert first == 1_000 + kernels.PROBE_INTERVAL_PS
    probed, now = [], first
    for _ in range(3):
        probed.append(int(kernels.wake(state, 0, now)))
        now = int(state.rows[0, WAKE])
    assert sorted(probed) == bad
    assert now <= first + kernels.PROBE_INTERVAL_PS
