"""Congestion controls.

DCQCN against its paper (SIGCOMM 2015): a plain twin, its stages by hand, and an incast.

NSCC against the formulas, by hand (uet-htsim).

Swift against algorithm 1 of its paper (SIGCOMM 2020), by hand, and on an incast.
"""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.kernels.kernel import Floats
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.hosts import dcqcn, nscc, swift
from rocescope.replay.packets.hosts.congestion import WINDOW, Heard, Line, congestion
from rocescope.replay.packets.hosts.dcqcn import (
    BYTES,
    DCQCN,
    DCQCN_ALPHA,
    DCQCN_CLAMP,
    RATE,
    TARGET,
)
from rocescope.replay.packets.hosts.nscc import ETA, MOST, NSCC
from rocescope.replay.packets.hosts.nscc import TARGET as NSCC_TARGET
from rocescope.replay.packets.hosts.swift import CWND, SWIFT
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.arrays import RoundTrips
from rocescope.replay.packets.model.model import MARKED, Model
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.strategies.registry import parse_packet_strategy

MSS, US = 4160, 1_000_000
LINE_BITS = 40_000_000_000
TRIPS = RoundTrips(np.array([8 * US]), np.array([LINE_BITS]), np.array([4]))
LINE = LINE_BITS / 8e12


class Twin:
    """The paper's reaction point with an event per timer, in bits per second."""

    def __init__(self, clamp: bool) -> None:
        self.clamp = clamp
        self.rate = self.target = self.line = float(LINE_BITS)
        self.alpha, self.bytes = 1.0, 0
        self.stages = [0, 0]  # of the timer, of the byte counter
        self.next_alpha = self.next_timer = 55 * US

    def until(self, now: int) -> None:
        while min(self.next_alpha, self.next_timer) <= now:
            if self.next_alpha <= self.next_timer:
                self.alpha *= 1 - 1 / 256
                self.next_alpha += 55 * US
            elif self.rate >= self.line:
                self.next_timer = now + 55 * US
            else:
                self.next_timer += 55 * US
                self.stages[0] += 1
                self.increase()

    def increase(self) -> None:
        if max(self.stages) > 5:
            beyond = min(self.stages) - 5
            self.target += beyond * 400e6 if beyond > 0 else 40e6
        self.target = min(self.line, self.target)
        self.rate = min(self.line, (self.rate + self.target) / 2)

    def cnp(self, now: int) -> None:
        self.until(now)
        if self.clamp or any(self.stages):
            self.target = self.rate
        self.rate = max(100e6, self.rate * (1 - self.alpha / 2))
        self.alpha = (1 - 1 / 256) * self.alpha + 1 / 256
        self.stages, self.bytes = [0, 0], 0
        self.next_alpha = self.next_timer = now + 55 * US

    def send(self, size: int, now: int) -> None:
        self.until(now)
        self.bytes += size
        while self.bytes >= 10_000_000:
            self.bytes -= 10_000_000
            self.stages[1] += 1
            self.increase()


@pytest.mark.thorough
@examples(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((50, 55, 60, 700)), st.sampled_from(("cnp", 1, 3_000_000, 9_999_999))
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_as_an_event_per_timer(events: list[tuple[int, str | int]], clamp: bool) -> None:
    control = congestion(DCQCN_CLAMP if clamp else DCQCN, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    twin, now = Twin(clamp), 0
    for after, what in events:
        now += after * US
        if isinstance(what, str):
            twin.cnp(now)
            dcqcn.on_cnp(rows, params, 0, now)
        else:
            twin.send(what, now)
            pace = dcqcn.on_send(rows, params, 0, what, now)
            assert pace == pytest.approx(what * 8e12 / twin.rate, rel=1e-6, abs=1)
        assert rows[0, RATE] * 8e12 == pytest.approx(twin.rate, rel=1e-9)
        assert rows[0, TARGET] * 8e12 == pytest.approx(twin.target, rel=1e-9)
        assert rows[0, DCQCN_ALPHA] == pytest.approx(twin.alpha, rel=1e-9)
        assert rows[0, BYTES] == twin.bytes


def test_fast_recovery_then_additive_then_hyper_increase() -> None:
    control = congestion(DCQCN_CLAMP, 1, Line(MSS, TRIPS, False))
    rows, params = control.rows, control.params
    for i in range(6):
        dcqcn.on_cnp(rows, params, 0, 50 * US * i)
    cut, before = rows[0, RATE], rows[0, TARGET]
    assert cut == pytest.approx(LINE / 64, rel=0.02)  # alpha is still about 1
    at = 250 * US
    for stage in range(1, 6):
        dcqcn.on_send(rows, params, 0, 0, at + 55 * US * stage)
        assert rows[0, RATE] == pytest.approx(before - (before - cut) / 2**stage)
    dcqcn.on_send(rows, params, 0, 0, at + 55 * US * 6)
    assert rows[0, TARGET] == pytest.approx(before + LINE / 1000)  # 40 Mb/s of 40 Gb/s
    dcqcn.on_send(rows, params, 0, 60_000_000, at + 55 * US * 6)
    # Six stages of the byte counter: the sixth is beyond F for both.
    assert rows[0, TARGET] == pytest.approx(before + (1 + 5 + 10) * LINE / 1000)


def incast(rate: str, message: int, model: Model, name: str = "dcqcn") -> FeedbackResult:
    fabric = parse_fabric(f"leaf-spine:leaves=1,spines=1,hosts=9,rate={rate},delay=1us")
    load = workload_of(np.arange(8), np.full(8, 8), np.full(8, message), None, model)  # type: ignore[arg-type]
    return run_event_driven(
        load,
        fabric,
        parse_packet_strategy("jsq"),
        model,
        transport=Transport(congestion=name),
    )


@pytest.mark.parametrize(("rate", "message"), [("40G", 8 << 20), ("400G", 8 << 20)])
def test_an_incast_keeps_its_line_busy_at_any_rate(rate: str, message: int) -> None:
    model = Model(ecn_low_bytes=5_000, ecn_high_bytes=200_000, ecn_most=0.01, pfc=None)
    result = incast(rate, message, model)
    done = result.engine.completion_ps
    assert done is not None
    carried = int(result.engine.link_bytes.max())
    assert carried * 8e12 / (int(rate[:-1]) * 1e9) / done > 0.75
    # One CNP per flow and 50 us at most, each of them a packet.
    assert 8 <= result.tally.cnps <= 8 * (done // (50 * US) + 1)
    packets = int(result.tally.data_received)
    assert int(result.engine.link_packets.sum()) == 2 * (2 * packets + result.tally.cnps)


def test_a_target_that_every_cnp_lowers_takes_longer_to_come_back() -> None:
    model = Model(ecn_low_bytes=5_000, ecn_high_bytes=200_000, ecn_most=0.01, pfc=None)
    kept, lowered = (
        incast("40G", 4 << 20, model, name).engine.completion_ps
        for name in ("dcqcn", "dcqcn-clamp")
    )
    assert kept is not None and lowered is not None and kept < lowered


def test_a_paced_flow_sends_when_its_pace_says_so_on_long_cables() -> None:
    """The NIC is served late, when a packet ends its cable; many packets are on it at once."""
    model = Model(
        payload_bytes=936, ecn_low_bytes=5_000, ecn_high_bytes=200_000, ecn_most=0.01, pfc=None
    )
    fabric = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=3,rate=40G,delay=20us")
    load = workload_of(np.arange(2), np.full(2, 2), np.full(2, 1 << 20), None, model)  # type: ignore[arg-type]
    engine = run_event_driven(
        load,
        fabric,
        parse_packet_strategy("jsq"),
        model,
        transport=Transport(congestion="dcqcn-clamp"),
        keep_arrivals=True,
        keep_sent=True,
    ).engine
    assert engine.sent_ps is not None and engine.arrived_ps is not None
    assert engine.arrived_flags is not None
    marked = engine.arrived_ps[(engine.arrived_flags & (MARKED >> 56)) > 0]
    last_cnp = marked.max() + (50 + 2 * 20) * US  # waits for the one before, and two cables
    for sent in np.split(engine.sent_ps, 2):
        gaps = np.diff(sent[sent > last_cnp])
        assert len(gaps) > 200
        assert (np.diff(gaps) <= 2).all()  # the rate only rises
        assert gaps.max() > 1.1 * 200_000  # below the line's


def test_without_marks_nobody_sends_a_cnp() -> None:
    assert incast("40G", 1 << 20, Model(pfc=None)).tally.cnps == 0


MSS_NSCC, RTT, RATE_NSCC = 4160, 8_000_000, 400_000_000_000
TRIPS_NSCC = RoundTrips(np.array([RTT]), np.array([RATE_NSCC]), np.array([4]))
BDP = RATE_NSCC / 8e12 * RTT


def heard(rows: Floats, params: Floats, rtt_ps: int, marked: bool, now_ps: int) -> None:
    nscc.on_ack(rows, params, Heard(0, MSS_NSCC, rtt_ps, int(marked), 4, now_ps))


def test_nscc_starts_at_one_and_a_half_bdp_and_cuts_by_delay() -> None:
    control = congestion(NSCC, 1, Line(MSS_NSCC, TRIPS_NSCC, True))
    rows, params = control.rows, control.params
    assert rows[0, WINDOW] == rows[0, MOST] == pytest.approx(1.5 * BDP)
    assert params[NSCC_TARGET] == 0.75 * RTT
    mean, now = 0.0, 10 * RTT
    delay = 3 * RTT
    for _ in range(400):
        now += 100_000
        before = rows[0, WINDOW]
        heard(rows, params, RTT + delay, True, now)
        mean += 0.0125 * (delay - mean)
        if rows[0, WINDOW] < before:
            cut = max(1 - 0.8 * (mean - params[NSCC_TARGET]) / mean, 0.5)
            assert rows[0, WINDOW] == pytest.approx(max(MSS_NSCC, before * cut), rel=0.02)
    assert rows[0, WINDOW] < BDP


def test_nscc_ignores_marks_without_delay_and_grows_without_marks() -> None:
    control = congestion(NSCC, 1, Line(MSS_NSCC, TRIPS_NSCC, False))
    rows, params = control.rows, control.params
    rows[0, WINDOW] = BDP / 2
    for i in range(20):
        heard(rows, params, RTT, True, 1_000 * i)
    assert rows[0, WINDOW] <= BDP / 2 + params[ETA]  # eta once per period at most
    before = rows[0, WINDOW]
    for i in range(100):
        heard(rows, params, RTT, False, 100_000 + 1_000 * i)
    assert before < rows[0, WINDOW] <= rows[0, MOST]


def test_nscc_gives_back_what_was_trimmed() -> None:
    control = congestion(NSCC, 1, Line(MSS_NSCC, TRIPS_NSCC, True))
    before = control.rows[0, WINDOW]
    nscc.on_loss(control.rows, control.params, 0, MSS_NSCC, True, 1_000)
    assert control.rows[0, WINDOW] == before - MSS_NSCC


def test_trims_adapt_quickly_losses_do_not() -> None:
    """A period of 1.75 round trips in which 3 packets came through: after a trim that is the
    window, and marks do not count until a window's worth is acknowledged."""
    control = congestion(NSCC, 1, Line(MSS_NSCC, TRIPS_NSCC, True))
    rows, params = control.rows, control.params
    whole, now = rows[0, WINDOW], 2 * RTT

    def acks(count: int, marked: bool, delay: int = 0) -> None:
        for _ in range(count):
            heard(rows, params, RTT + delay, marked, now)

    acks(1, False)  # the first period begins
    acks(3, False)
    now += 2 * RTT
    nscc.on_loss(rows, params, 0, MSS_NSCC, False, now)
    assert rows[0, WINDOW] == whole - MSS_NSCC
    nscc.on_loss(rows, params, 0, MSS_NSCC, True, now)
    assert rows[0, WINDOW] == 3 * MSS_NSCC
    now += RTT
    before = rows[0, WINDOW]
    acks(5, True, 3 * RTT)
    assert rows[0, WINDOW] == before
    acks(20, False)
    assert rows[0, WINDOW] > before


def test_every_flow_has_its_own_round_trip_and_the_network_the_longest() -> None:
    near_and_far = RoundTrips(
        np.array([RTT // 4, RTT]), np.array([RATE_NSCC, RATE_NSCC]), np.array([2, 4])
    )
    control = congestion(NSCC, 2, Line(MSS_NSCC, near_and_far, False))
    assert control.rows[:, WINDOW] == pytest.approx([1.5 * BDP / 4, 1.5 * BDP])
    assert control.params[NSCC_TARGET] == RTT


MSS_SWIFT, RTT_SWIFT, RATE_SWIFT, HOPS = 4160, 8_000_000, 400_000_000_000, 4
TRIPS_SWIFT = RoundTrips(np.array([RTT_SWIFT]), np.array([RATE_SWIFT]), np.array([HOPS]))
BDP_SWIFT = RATE_SWIFT / 8e12 * RTT_SWIFT / MSS_SWIFT


def target(cwnd: float) -> float:
    alpha = 5 * RTT_SWIFT / (1 / np.sqrt(0.1) - 1 / np.sqrt(100))
    scaling = alpha / np.sqrt(cwnd) - alpha / np.sqrt(100)
    return float(RTT_SWIFT + HOPS * RTT_SWIFT / 6.55 + max(0.0, min(scaling, 5 * RTT_SWIFT)))


@pytest.mark.thorough
def test_grows_below_the_target_and_cuts_once_per_round_trip_above() -> None:
    control = congestion(SWIFT, 1, Line(MSS_SWIFT, TRIPS_SWIFT, False))
    rows, params = control.rows, control.params
    assert rows[0, CWND] == pytest.approx(1.5 * BDP_SWIFT)
    rows[0, CWND] = 50.0
    swift.on_ack(rows, params, Heard(0, 3 * MSS_SWIFT, int(target(50.0)) - 1, 1, HOPS, 10**8))
    assert rows[0, CWND] == pytest.approx(50 + 3 / 50)  # marks do not matter
    before, late = float(rows[0, CWND]), 20_000_000
    excess = (late - target(before)) / late
    for now in (2 * 10**8, 2 * 10**8 + late - 1):
        swift.on_ack(rows, params, Heard(0, MSS_SWIFT, late, 0, HOPS, now))
        assert rows[0, CWND] == pytest.approx(before * (1 - 0.8 * excess))
    swift.on_ack(rows, params, Heard(0, MSS_SWIFT, late, 0, HOPS, 2 * 10**8 + late))
    assert rows[0, CWND] < 0.9 * before
    rows[0, CWND] = 40.0
    swift.on_ack(rows, params, Heard(0, MSS_SWIFT, 10**9, 0, HOPS, 10**10))
    assert rows[0, CWND] == 20.0  # half at most


def test_more_links_and_smaller_windows_may_wait_longer() -> None:
    rows = congestion(SWIFT, 1, Line(MSS_SWIFT, TRIPS_SWIFT, False)).rows
    for cwnd in (0.05, 0.1, 1.0, 100.0, 400.0):
        rows[0, CWND] = cwnd
        assert swift.target_ps(rows, 0, HOPS) == pytest.approx(target(max(0.1, cwnd)))
    assert swift.target_ps(rows, 0, 6) - swift.target_ps(rows, 0, 4) == pytest.approx(
        2 * RTT_SWIFT / 6.55
    )


def test_below_one_packet_the_window_is_a_pace() -> None:
    control = congestion(SWIFT, 1, Line(MSS_SWIFT, TRIPS_SWIFT, False))
    rows, params = control.rows, control.params
    assert swift.on_send(rows, params, 0, MSS_SWIFT, 0) == 0
    for i in range(1, 30):
        swift.on_loss(rows, params, 0, MSS_SWIFT, 0, 10**9 * i)
    assert rows[0, CWND] == 0.01 and rows[0, WINDOW] == MSS_SWIFT
    assert swift.on_send(rows, params, 0, MSS_SWIFT, 0) == 100 * RTT_SWIFT


def test_an_incast_under_swift_has_a_queue_of_its_target() -> None:
    """Without control the queue holds seven of eight windows' worth of every message."""
    fabric = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=9,rate=100G,delay=1us")
    model = Model(pfc=None)
    load = workload_of(np.arange(8), np.full(8, 8), np.full(8, 4 << 20), None, model)  # type: ignore[arg-type]
    free, held = (
        run_event_driven(
            load, fabric, parse_packet_strategy("jsq"), model, transport=Transport(congestion=name)
        ).engine
        for name in ("none", "swift")
    )
    assert free.completion_ps is not None and held.completion_ps is not None
    assert held.completion_ps < 1.05 * free.completion_ps
    assert 20 * int(held.link_max_bytes.max()) < int(free.link_max_bytes.max())
