"""Options of strategies."""

from __future__ import annotations

from collections import deque

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.labels import (
    ACKED,
    DRAWS,
    LOST,
    MARKED,
    NEVER,
    OUTSTANDING,
    PROBE_CLEAN,
    RTT,
    TIMEOUT,
    TRIMMED,
    WAKE,
    EvState,
    draw,
)
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import bitmap as kernels
from rocescope.replay.strategies import bitmap as plain
from rocescope.replay.strategies import hopper as kernels_hopper
from rocescope.replay.strategies import mixed as kernels_mixed
from rocescope.replay.strategies import plb as kernels_plb
from rocescope.replay.strategies import reps as kernels_reps
from rocescope.replay.strategies.base import Configured
from rocescope.replay.strategies.registry import parse_packet_strategy

# Options of strategies.

# Options of strategies.


class Some(Configured):
    name = "some"


def test_values_and_defaults():
    given = Some({"k": "7", "mode": "b", "gap": "5us"})
    assert (given.whole("k", 1, 1, 9), Some({}).whole("k", 1, 1, 9)) == (7, 1)
    assert (given.word("mode", "a", "b"), Some({}).word("mode", "a", "b")) == ("b", "a")
    assert given.duration_ps("gap", "1ms") == (5 * 10**6, "5us")
    assert Some({}).duration_ps("gap", "1ms") == (10**9, "1ms")
    given.known("k", "mode", "gap")


def test_a_default_that_another_strategy_sets():
    assert Some({"k": "7"}).with_default("k", "3").options == {"k": "7"}
    assert Some({}).with_default("k", "3").options == {"k": "3"}
    assert Some({}, "other").name == "other" and Some({}).name == "some"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda s: s.whole("k", 1, 1, 9), "some: k '10' is not a whole number from 1 to 9"),
        (lambda s: s.word("k", "a", "b"), "some: k=10: use a or b"),
        (lambda s: s.known("x"), "some has no option 'k'; it has x"),
        (lambda s: s.known(), "some has no option 'k'; it has no options"),
        (lambda s: s.duration_ps("k", "1s"), "some: k"),
    ],
)
def test_mistakes(read, message):
    with pytest.raises(UsageError, match=message):
        read(Some({"k": "10"}))


# Whole-flow strategies on the packet engine where hosts have several ports.


def test_subflows_spread_in_the_plane_of_their_flow() -> None:
    """Each of 64 parts was placed in one of two planes, but all of a flow leave by one port."""
    fabric = parse_fabric("multi-plane:planes=2,leaves=2,spines=4,hosts=1,rate=100G")
    model = Model(ack_every=1 << 14, pfc=None)  # the last packet alone is acknowledged
    load = collective("permutation", fabric, model, 1 << 20, 1)  # 256 packets each way
    result = run_open_loop(load, fabric, parse_packet_strategy("subflow:k=64"), model)
    up = [
        result.link_packets[fabric.find_links(f"plane1.leaf1>plane1.spine{i}")[0]]
        for i in range(1, 5)
    ]
    assert sum(up) == 257 and max(up) < 128
    assert result.link_packets[fabric.find_links("plane2.leaf1>plane2.spine1")[0]] == 0


# Penalties of the Ultra Ethernet bitmap against a plain model.

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


# Hopper: when a flow probes, and when it moves, by hand (arXiv 2506.08132).

BASE = 10_000


def started() -> tuple[EvState, int]:
    state, _ = kernels_hopper.hopper(1, 5, 1, 1 << 16, BASE)
    return state, kernels_hopper.select(state, 0, 1, 0)


def answered(state: EvState, ev: int, rtt: int, now: int, what: int = ACKED) -> None:
    state.rows[0, RTT] = rtt
    kernels_hopper.feedback(state, 0, ev, what, now)


def probed(state: EvState, now: int) -> list[int]:
    labels = []
    while state.rows[0, WAKE] != NEVER:
        labels.append(int(kernels_hopper.wake(state, 0, max(now, state.rows[0, WAKE]))))
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
        assert kernels_hopper.select(state, 0, 1, BASE + 100) == ev  # until both are known
        answered(state, second, 19_000, BASE + 200, PROBE_CLEAN)
        assert kernels_hopper.select(state, 0, 1, BASE + 200) == (first if moves else ev)


def test_the_average_moves_by_an_eighth_and_old_labels_do_not_count() -> None:
    state, ev = started()
    answered(state, ev, 8_000, 0)
    answered(state, ev, 16_000, 1)
    assert state.rows[0, kernels_hopper.AVERAGE_PS] == 9_000
    answered(state, ev + 1, 90_000, 2)
    assert state.rows[0, kernels_hopper.AVERAGE_PS] == 9_000
    kernels_hopper.feedback(state, 0, ev, TIMEOUT, 3)
    assert kernels_hopper.select(state, 0, 1, 4) != ev


# Mixed: EVs of unmarked packets first, against a plain model on top of the bitmap.

MIXED_EVS = 8


@pytest.mark.thorough
@examples(60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, MIXED_EVS - 1)), max_size=80))
def test_stored_values_first_then_those_of_the_bitmap(steps: list[tuple[int, int]]) -> None:
    state, _ = kernels_mixed.mixed(1, 3, 1, MIXED_EVS)
    other, _ = plain.bitmap(1, 3, 1, MIXED_EVS)
    stored: deque[int] = deque(maxlen=MIXED_EVS)
    for kind, ev in steps:
        if kind == 0:
            expected = stored.popleft() if stored else plain.select(other, 0, 1, 0)
            assert kernels_mixed.select(state, 0, 1, 0) == expected
        else:
            what = (0, ACKED, MARKED, TRIMMED, TIMEOUT)[kind]
            kernels_mixed.feedback(state, 0, ev, what, 0)
            if what == ACKED:
                stored.append(ev)
            else:
                plain.feedback(other, 0, ev, what, 0)
        assert state.table[0, :MIXED_EVS].tolist() == other.table[0].tolist()


def test_a_stored_value_waits_for_its_port() -> None:
    state, _ = kernels_mixed.mixed(1, 3, 2, MIXED_EVS)
    kernels_mixed.feedback(state, 0, 5, ACKED, 0)
    assert kernels_mixed.select(state, 0, 0b01, 0) % 2 == 0
    assert kernels_mixed.select(state, 0, 0b10, 0) == 5


# PLB: rounds, thresholds, pauses, by hand (Linux, tcp_plb.c).

ROUND = 1_000


def _state(**options):
    state, _ = kernels_plb.plb(1, 5, 1, 1 << 16, ROUND, **options)
    return state


def _round(state, now: int, marked: int, of: int) -> int:
    for i in range(of):
        last = i == of - 1
        when = now + ROUND if last else now
        kernels_plb.feedback(state, 0, 0, MARKED if i < marked else ACKED, when)
    return now + ROUND


@pytest.mark.thorough
def test_a_label_stays_until_enough_rounds_are_congested() -> None:
    state = _state(percent=50, rounds=3, idle_rounds=3)
    state.rows[0, OUTSTANDING] = 4
    first, now = kernels_plb.select(state, 0, 1, 0), 0
    for marked in (5, 5, 4, 5, 5):  # the third round is below 50 % and starts over
        now = _round(state, now, marked, 10)
        assert kernels_plb.select(state, 0, 1, now) == first
    now = _round(state, now, 5, 10)
    assert kernels_plb.select(state, 0, 1, now) != first


def test_an_idle_flow_moves_sooner() -> None:
    state = _state(percent=50, rounds=12, idle_rounds=1)
    state.rows[0, OUTSTANDING] = 1
    first = kernels_plb.select(state, 0, 1, 0)
    _round(state, 0, 10, 10)
    assert kernels_plb.select(state, 0, 1, ROUND) == first
    state.rows[0, OUTSTANDING] = 0
    assert kernels_plb.select(state, 0, 1, ROUND) != first


def test_a_timeout_moves_at_once_and_pauses() -> None:
    state = _state(rounds=1, pause_ps=1_000_000)
    state.rows[0, OUTSTANDING] = 1
    first = kernels_plb.select(state, 0, 1, 0)
    kernels_plb.feedback(state, 0, first, TIMEOUT, 10)
    second = kernels_plb.select(state, 0, 1, 10)
    assert second != first
    now = _round(state, 10, 10, 10)
    assert kernels_plb.select(state, 0, 1, now) == second  # paused 1 to 2 us
    assert kernels_plb.select(state, 0, 1, 2_000_010) != second


# REPS against a plain model of the paper's algorithm, with lists instead of rings.

REPS_EVS, SEED, FIRST, FREEZE = 64, 7, 3, 1_000


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
                self.frozen, self.explore = False, kernels_reps.EXPLORE_AFTER
        elif what == TIMEOUT and not self.frozen and not self.explore:
            self.frozen, self.until = True, now + FREEZE


events = st.lists(
    st.one_of(
        st.just(("send",)),
        st.tuples(st.just("ack"), st.integers(0, REPS_EVS - 1)),
        st.tuples(st.just("mark"), st.integers(0, REPS_EVS - 1)),
        st.tuples(st.just("timeout"), st.integers(0, REPS_EVS - 1)),
        st.tuples(st.just("wait"), st.integers(1, 2_000)),
    ),
    max_size=80,
)


@pytest.mark.thorough
@examples(60)
@given(events)
def test_ring(steps) -> None:
    state, _ = kernels_reps.reps(1, SEED, 1, REPS_EVS, FIRST, FREEZE)
    plain, now = PlainReps(), 0
    for step in steps:
        if step[0] == "send":
            before = int(state.rows[0, DRAWS])

            def random_ev(count: int = before) -> int:
                copy = state._replace(rows=state.rows.copy())
                copy.rows[0, DRAWS] = count
                return int(draw(copy, 0, REPS_EVS))

            expected = plain.select(random_ev)
            assert kernels_reps.select(state, 0, 1, now) == expected
        elif step[0] == "wait":
            now += step[1]
        else:
            what = {"ack": ACKED, "mark": MARKED, "timeout": TIMEOUT}[step[0]]
            kernels_reps.feedback(state, 0, step[1], what, now)
            plain.feedback(step[1], what, now)


def test_the_last_eight_good_ones_in_turn_and_again_when_frozen() -> None:
    state, _ = kernels_reps.reps(1, SEED, 1, 1 << 16, 0, FREEZE)
    for ev in range(9):
        kernels_reps.feedback(state, 0, ev, ACKED, 0)
    kernels_reps.feedback(state, 0, 50_000, MARKED, 0)  # never recycled

    def sent(count: int, now: int) -> list[int]:
        return [int(kernels_reps.select(state, 0, 1, now)) for _ in range(count)]

    assert sent(8, 0) == list(range(1, 9))  # the ninth overwrote the first
    assert not set(sent(4, 0)) & set(range(9))  # used up: random
    kernels_reps.feedback(state, 0, 3, TIMEOUT, 10)
    assert sent(20, 10) == [1, 2, 3, 4, 5, 6, 7, 8] * 2 + [1, 2, 3, 4]
    kernels_reps.feedback(state, 0, 70, ACKED, 10 + FREEZE)  # not yet over
    assert 70 in sent(1, 10 + FREEZE)
    assert set(sent(16, 10 + FREEZE)) <= {*range(1, 9), 70}
    kernels_reps.feedback(state, 0, 71, ACKED, 11 + FREEZE)
    explored = sent(kernels_reps.EXPLORE_AFTER, 11 + FREEZE)
    assert not set(explored) & {*range(9), 70, 71}
    assert sent(1, 11 + FREEZE) == [71]


def test_an_ev_leaves_by_a_free_port() -> None:
    state, _ = kernels_reps.reps(1, SEED, 4, REPS_EVS, FIRST)
    for mask in range(1, 16):
        assert mask >> int(kernels_reps.select(state, 0, mask, 0)) % 4 & 1
    assert kernels_reps.select(state, 0, 0, 0) == -1
