"""Hopper: when a flow probes, and when it moves, by hand (arXiv 2506.08132)."""

import pytest

from rocescope.replay.packets.model.labels import (
    ACKED,
    NEVER,
    PROBE_CLEAN,
    RTT,
    TIMEOUT,
    WAKE,
    EvState,
)
from rocescope.replay.strategies import hopper as kernels

BASE = 10_000


def started() -> tuple[EvState, int]:
    state, _ = kernels.hopper(1, 5, 1, 1 << 16, BASE)
    return state, kernels.select(state, 0, 1, 0)


def answered(state: EvState, ev: int, rtt: int, now: int, what: int = ACKED) -> None:
    state.rows[0, RTT] = rtt
    kernels.feedback(state, 0, ev, what, now)


def probed(state: EvState, now: int) -> list[int]:
    labels = []
    while state.rows[0, WAKE] != NEVER:
        labels.append(int(kernels.wake(state, 0, max(now, state.rows[0, WAKE]))))
    return labels


@pytest.mark.thorough
def test_a_flow_probes_two_labels_above_one_and_a_half_base_rtts() -> None:
    state, ev = started()
    answered(state, ev, 15_000, BASE)
    assert probed(state, BASE) == []  # not above
    state, ev = started()
    answered(state, ev, 15_001, BASE - 1)
    assert probed(state, BASE) == []  # the first round trip is not over
    answered(state, ev, 15_001, BASE)
    labels = probed(state, BASE)
    assert len(labels) == 2 and ev not in labels
    answered(state, ev, 15_001, BASE + 20_000)
    assert probed(state, BASE + 20_000) == []  # the answers are still under way
    answered(state, ev, 15_001, BASE + 40_000)
    assert len(probed(state, BASE + 40_000)) == 2  # they were lost


def test_it_takes_the_faster_probe_if_that_needs_less_than_80_percent() -> None:
    for best, moves in ((15_999, True), (16_000, False)):
        state, ev = started()
        answered(state, ev, 20_000, BASE)
        first, second = probed(state, BASE)
        answered(state, first, best, BASE + 100, PROBE_CLEAN)
        assert kernels.select(state, 0, 1, BASE + 100) == ev  # until both are known
        answered(state, second, 19_000, BASE + 200, PROBE_CLEAN)
        assert kernels.select(state, 0, 1, BASE + 200) == (first if moves else ev)


def test_the_average_moves_by_an_eighth_and_old_labels_do_not_count() -> None:
    state, ev = started()
    answered(state, ev, 8_000, 0)
    answered(state, ev, 16_000, 1)
    assert state.rows[0, kernels.AVERAGE_PS] == 9_000
    answered(state, ev + 1, 90_000, 2)
    assert state.rows[0, kernels.AVERAGE_PS] == 9_000
    kernels.feedback(state, 0, ev, TIMEOUT, 3)
    assert kernels.select(state, 0, 1, 4) != ev
