"""DCQCN against its paper (SIGCOMM 2015): a plain twin, its stages by hand, and an incast."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.hosts.congestion import dcqcn
from rocescope.replay.packets.hosts.congestion.algorithm import Line, congestion
from rocescope.replay.packets.hosts.congestion.dcqcn import (
    BYTES,
    DCQCN,
    DCQCN_ALPHA,
    DCQCN_CLAMP,
    RATE,
    TARGET,
)
from rocescope.replay.packets.hosts.parameters import Transport
from rocescope.replay.packets.model.model import MARKED, Model
from rocescope.replay.packets.model.round_trip import RoundTrips
from rocescope.replay.packets.offers.offered import workload_of
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
