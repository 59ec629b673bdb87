"""What hosts keep to while they send: usable EVs alone, MPR, timeouts that double, marks echoed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.kernels.kernel import Int, subkernel
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.failures import Failures, LinkEvent, flapping, outage
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model import labels as host
from rocescope.replay.packets.model.labels import EvState, host_functions
from rocescope.replay.packets.model.model import MARKED, Model, Workload
from rocescope.replay.packets.model.rules import Rules, Strategy
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.strategies import mrc
from rocescope.replay.strategies.registry import parse_packet_strategy

US = 1_000_000
PLANES = parse_fabric("multi-plane:planes=2,leaves=2,spines=4,hosts=2,rate=100G,delay=500ns")
PATH = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=5us")
_BAD_SENT, _MARKS_HEARD = 14, 15  # columns of EvState.rows that no strategy uses


@subkernel
def _watched_select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    ev = mrc.select(state, flow, free_ports, now_ps)
    if ev >= 0 and np.int64(state.table[flow, ev]) & np.int64(3) != mrc.GOOD:
        state.rows[flow, _BAD_SENT] += 1
    return ev


@subkernel
def _watched_feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    if what == host.MARKED:
        state.rows[flow, _MARKS_HEARD] += 1
    return mrc.feedback(state, flow, ev, what, now_ps)


@dataclass(frozen=True)
class Watched(Strategy):
    """MRC that counts."""

    denied: tuple[int, ...] = ()
    name: str = "watched"
    reacts: ClassVar[bool] = True
    static_paths: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        rules = parse_packet_strategy("mrc:evs=4").rules(workload, fabric, seed)
        state, _ = mrc.mrc(len(workload.src), seed, 2, 4, 4, 1, 20 * US, 2, self.denied)
        functions = host_functions(_watched_select, _watched_feedback, mrc.wake)
        return replace(rules, hosts=(state, functions))


def run(
    pairs: list[tuple[int, int]],
    packets: int,
    fabric: Fabric,
    strategy: Any,
    transport: Transport,
    model: Model | None = None,
    failures: Failures | None = None,
    until_ps: int = 10**10,
) -> FeedbackResult:
    model = model or Model(pfc=None)
    src, dst = np.array(pairs).T
    size = np.full(len(src), packets * model.payload_bytes)
    load = workload_of(src, dst, size, None, model)  # type: ignore[arg-type]
    return run_event_driven(
        load, fabric, strategy, model, 1, transport=transport, failures=failures,
        until_ps=until_ps, keep_arrivals=True,
    )  # fmt: skip


@pytest.mark.thorough
@examples(15)
@given(st.integers(0, 1 << 30), st.booleans())
def test_no_packet_is_sent_by_an_ev_that_is_not_good(seed: int, trims: bool) -> None:
    rng = np.random.default_rng(seed)
    inner = np.flatnonzero((PLANES.links.source < 12) & (PLANES.links.target < 12))
    bad, lossy = (int(i) for i in rng.choice(inner, 2, replace=False))
    events = (
        *flapping([bad], 5 * US, 80 * US, 20 * US, 15 * US),
        LinkEvent(0, lossy, "lossy", 0.1),
    )
    denied = int(rng.integers(8))
    model = Model(
        buffer_bytes=40_000, trim_bytes=64 if trims else None,
        ecn_low_bytes=5_000, ecn_high_bytes=20_000,
    )  # fmt: skip
    transport = Transport(recovery="sack", reordering_packets=64, rto_ps=30 * US)
    pairs = [(0, 2), (1, 2), (2, 0), (3, 1)]
    result = run(pairs, 300, PLANES, Watched((denied,)), transport, model, Failures(events))
    assert (result.engine.completed_ps >= 0).all() and result.evs is not None
    assert result.tally.sent_again > 0 and not result.evs.rows[:, _BAD_SENT].any()
    up = PLANES.find_links(
        f"plane{denied % 2 + 1}.leaf1>plane{denied % 2 + 1}.spine{denied // 2 + 1}"
    )
    assert not result.engine.link_bytes[up].any()  # nor its ACKs, which come back by the same path


def test_one_mark_since_the_last_ack_is_echoed() -> None:
    model = Model(ack_every=64, ecn_low_bytes=8_000, ecn_high_bytes=60_000, pfc=None)
    pairs = [(src, dst) for src in (0, 1, 3) for dst in [2] * 4]
    result = run(pairs, 8, PLANES, Watched(), Transport(), model)
    flags = result.engine.arrived_flags
    assert flags is not None and result.evs is not None
    marked = (flags & (MARKED >> 56) != 0).reshape(len(pairs), 8)  # one ACK per message
    assert 0 < marked[:, -1].sum() < marked.any(1).sum()
    assert result.evs.rows[:, _MARKS_HEARD].tolist() == marked.any(1).astype(int).tolist()


def test_mpr_limits_what_is_under_way() -> None:
    one = parse_packet_strategy("host-spray")
    free, held = (
        run([(0, 2)], 40, PATH, one, Transport(mpr_packets=mpr)).engine.completion_ps
        for mpr in (0, 4)
    )
    assert free is not None and held is not None
    round_trip = 8 * 5 * US + 4 * 332_800 + 4 * 5_120  # the first packet and its ACK alone
    assert free == round_trip + 39 * 332_800
    # Every round trip starts with four packets: ten of them, and the last ends three packets later.
    assert held == 10 * round_trip + 3 * 332_800


def test_timeouts_double_after_the_linear_ones() -> None:
    dead = Failures(outage(["leaf1-spine1"], 0))
    one = parse_packet_strategy("host-spray")
    for recovery in ("sack", "go-back-n"):
        counts = [
            run(
                [(0, 2)], 1, PATH, one,
                Transport(recovery=recovery, rto_ps=10 * US, linear_retries=linear),
                failures=dead, until_ps=1005 * US,
            ).tally.timeouts
            for linear in (2, 1000)
        ]  # fmt: skip
        assert counts == [8, 100]  # at 10, 20, 30, 50, 90, 170, 330, 650 us


@pytest.mark.parametrize("recovery", ["sack", "go-back-n"])
def test_a_flow_that_is_out_of_retries_fails_and_sends_no_more(recovery: str) -> None:
    """Of two flows the one over the dead cable fails; that the cable comes back later helps it no
    more."""
    dead = Failures(outage(["leaf1-spine1"], 0, 1000 * US))
    transport = Transport(recovery=recovery, rto_ps=10 * US, linear_retries=0, retries=3)
    one = parse_packet_strategy("host-spray:evs=1")
    result = run([(0, 2), (0, 1)], 3, PATH, one, transport, failures=dead)
    failed = result.engine.failed_ps
    assert failed is not None and failed[1] == -1
    # Three packets of 332.8 ns and as many of the other flow; timeouts of 10, 20, 40 and 80 us.
    assert 150 * US <= failed[0] <= 150 * US + 6 * 332_800
    assert (result.engine.completed_ps >= 0).tolist() == [False, True]
    assert result.tally.timeouts >= 4 and not result.engine.out_of_time


def test_progress_resets_the_retries() -> None:
    """Three outages of two timeouts each are no failure, but one of six is."""
    one = parse_packet_strategy("host-spray:evs=1")
    transport = Transport(recovery="go-back-n", rto_ps=30 * US, linear_retries=100, retries=3)

    def failed(*outages: tuple[int, int]) -> bool:
        events = tuple(
            event
            for begin, end in outages
            for event in outage(["leaf1-spine1"], begin * US, end * US)
        )
        result = run([(0, 2)], 2000, PATH, one, transport, failures=Failures(events))
        found = result.engine.failed_ps
        assert found is not None and result.tally.timeouts > 0
        assert (result.engine.completion_ps is None) == (found[0] >= 0)
        return bool(found[0] >= 0)

    assert not failed((20, 80), (300, 360), (600, 660))
    assert failed((20, 200))


def test_retries_need_a_recovery_with_timeouts() -> None:
    for recovery in ("none", "ideal"):
        with pytest.raises(UsageError, match="retries needs recovery=sack or recovery=go-back-n"):
            Transport(recovery=recovery, retries=7)
    with pytest.raises(UsageError, match="retries must be 0 to 255, not 256"):
        Transport(recovery="sack", retries=256)


def test_losses_of_a_fifth_end_under_dcqcn() -> None:
    model = Model(buffer_bytes=100_000, ecn_low_bytes=20_000, ecn_high_bytes=20_000)
    lossy = Failures((LinkEvent(0, "leaf1-spine1", "lossy", 0.2),))
    one = parse_packet_strategy("host-spray")
    transport = Transport(recovery="go-back-n", congestion="dcqcn", rto_ps=100 * US)
    result = run([(0, 2), (1, 2), (3, 2)], 500, PATH, one, transport, model, lossy, 10**11)
    assert (result.engine.completed_ps >= 0).all()


@pytest.mark.parametrize("control", ["nscc", "swift"])
@pytest.mark.parametrize("recovery", ["none", "sack"])
def test_a_window_below_the_packets_of_an_ack_does_not_wait_for_ever(
    control: str, recovery: str
) -> None:
    """Three hosts send to one, so that their windows shrink while nothing is lost."""
    spray = parse_packet_strategy("host-spray")
    transport = Transport(recovery=recovery, congestion=control)
    pairs = [(0, 2), (1, 2), (3, 2)]
    for every in (2, 40):
        result = run(pairs, 300, PATH, spray, transport, Model(ack_every=every, pfc=None))
        assert (result.engine.completed_ps >= 0).all() and not result.engine.out_of_time
        assert result.tally.timeouts == result.tally.sent_again == 0


@pytest.mark.parametrize("recovery", ["none", "ideal", "sack"])
def test_an_mpr_below_the_packets_of_an_ack_does_not_wait_for_ever(recovery: str) -> None:
    """Nor where the packet that asks for an ACK overtakes those for which the sender waits."""
    uneven = parse_fabric(
        "leaf-spine:leaves=2,spines=3,hosts=4,rate=25G,delay=1ns,slow=leaf1-spine1:10G"
    )
    spray, transport = parse_packet_strategy("host-spray"), Transport(recovery, mpr_packets=4)
    for every in (3, 32):
        for fabric, pairs in ((PATH, [(0, 2)]), (uneven, [(s, 7 - s) for s in range(4)])):
            result = run(pairs, 60, fabric, spray, transport, Model(ack_every=every, pfc=None))
            assert (result.engine.completed_ps >= 0).all()
            assert result.tally.timeouts == result.tally.sent_again == 0


@pytest.mark.parametrize("rto_us", [20, 2_000])
def test_go_back_n_asks_once_for_what_was_trimmed(rto_us: int) -> None:
    """Each go-back causes one NAK, whatever number of its packets is trimmed."""
    fabric = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=9,rate=100G,delay=500ns")
    one, model = (
        parse_packet_strategy("host-spray:evs=1"),
        Model(buffer_bytes=208_000, trim_bytes=64),
    )
    transport = Transport(recovery="go-back-n", rto_ps=rto_us * US)
    result = run([(src, 8) for src in range(8)], 100, fabric, one, transport, model)
    assert (result.engine.completed_ps >= 0).all()
    assert result.tally.trimmed_received > 1_000
    assert 0 < result.tally.trims_seen < result.tally.trimmed_received / 4


def test_go_back_n_outlasts_reordering_without_losses() -> None:
    """A receiver asks once per gap; if what is retransmitted is reordered, the timer does."""
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=100ns")
    pairs = [(src, 4 + (src + 1) % 4) for src in range(4)]
    transport = Transport(recovery="go-back-n", rto_ps=20 * US)
    spray = parse_packet_strategy("switch-random")
    result = run(pairs, 40, fabric, spray, transport)
    assert (result.engine.completed_ps >= 0).all() and not result.engine.link_drops.any()
    assert result.tally.timeouts > 0
    alone = run(pairs, 40, fabric, parse_packet_strategy("host-spray:evs=1"), transport)
    assert alone.tally.timeouts == alone.tally.sent_again == 0  # in order: without timers


def test_probes_wait_where_their_class_is_paused() -> None:
    """Hopper's probes are data: a paused port of a host holds them, too, and sends other classes
    meanwhile."""
    strategies = ("hopper",)
    request = ReplayRequest(
        "leaf-spine:leaves=3,spines=4,hosts=4,rate=25G,delay=3us,uplink_rate=40G",
        strategies,
        pattern="incast:message-size=300000,messages=2",
        jobs=("collective=halving-doubling,size=200000,place=spread,layers=2",),
        model="forwarding=cut-through",
        transport="rto=10us",
        priority=("data:weight=70", "background:weight=30"),
        seed=108,
    )
    (one,) = PreparedReplay(request).by_packets(strategies, None)[0].strategies
    assert one.packets is not None and one.packets.completion_ns is not None
    assert one.packets.pfc is not None and one.packets.pfc.pauses
    assert one.packets.pfc.lost_without_headroom == 0
