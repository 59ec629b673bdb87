"""PLB: rounds, thresholds, pauses, by hand (Linux, tcp_plb.c)."""

import pytest

from rocescope.replay.packets.model.labels import ACKED, MARKED, OUTSTANDING, TIMEOUT
from rocescope.replay.strategies import plb as kernels

ROUND = 1_000


def _state(**options):
    state, _ = kernels.plb(1, 5, 1, 1 << 16, ROUND, **options)
    return state


def _round(state, now: int, marked: int, of: int) -> int:
    for i in range(of):
        last = i == of - 1
        when = now + ROUND if last else now
        kernels.feedback(state, 0, 0, MARKED if i < marked else ACKED, when)
    return now + ROUND


@pytest.mark.thorough
def test_a_label_stays_until_enough_rounds_are_congested() -> None:
    state = _state(percent=50, rounds=3, idle_rounds=3)
    state.rows[0, OUTSTANDING] = 4
    first, now = kernels.select(state, 0, 1, 0), 0
    for marked in (5, 5, 4, 5, 5):  # the third round is below 50 % and starts over
        now = _round(state, now, marked, 10)
        assert kernels.select(state, 0, 1, now) == first
    now = _round(state, now, 5, 10)
    assert kernels.select(state, 0, 1, now) != first


def test_an_idle_flow_moves_sooner() -> None:
    state = _state(percent=50, rounds=12, idle_rounds=1)
    state.rows[0, OUTSTANDING] = 1
    first = kernels.select(state, 0, 1, 0)
    _round(state, 0, 10, 10)
    assert kernels.select(state, 0, 1, ROUND) == first
    state.rows[0, OUTSTANDING] = 0
    assert kernels.select(state, 0, 1, ROUND) != first


def test_a_timeout_moves_at_once_and_pauses() -> None:
    state = _state(rounds=1, pause_ps=1_000_000)
    state.rows[0, OUTSTANDING] = 1
    first = kernels.select(state, 0, 1, 0)
    kernels.feedback(state, 0, first, TIMEOUT, 10)
    second = kernels.select(state, 0, 1, 10)
    assert second != first
    now = _round(state, 10, 10, 10)
    assert kernels.select(state, 0, 1, now) == second  # paused 1 to 2 us
    assert kernels.select(state, 0, 1, 2_000_010) != second
