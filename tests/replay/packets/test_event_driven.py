"""The event-driven driver: equal to the open-loop one packet for packet, and what feedback adds."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from host_ports import port_links
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from waiting_nodes import with_waits

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import PacketKeys
from rocescope.replay.packets import event_driven
from rocescope.replay.packets.event_driven import FeedbackResult, run_event_driven
from rocescope.replay.packets.failures import SLOW, Failures, LinkEvent, flapping, outage
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import ACK, NUMBER_BITS, NUMBER_MASK, Model, Workload
from rocescope.replay.packets.offers import both_ways, collective, workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import run_many
from rocescope.replay.strategies.mrc import ASSUMED_BAD, GOOD
from rocescope.replay.strategies.registry import parse_packet_strategy
from rocescope.replay.traffic.traffic import Traffic

FABRICS = (
    "leaf-spine:leaves=2,spines=3,hosts=2,rate=100G,delay=40ns",
    "leaf-spine:leaves=3,spines=2,hosts=2,rate=400G,delay=7ns,uplink_rate=133G",
    "fat-tree:k=4,rate=800G,delay=20ns,down=leaf1-spine1,slow=leaf3-spine3:70G",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G,delay=30ns",
    "leaf-spine:leaves=2,spines=2,hosts=3,uplinks=2,rate=100G,delay=40ns",
    "leaf-spine:leaves=2,spines=2,hosts=3,rate=25G,delay=1ns",  # shorter than a gap
)
PLANES = "multi-plane:planes=4,leaves=2,spines=4,hosts=4,rate=100G,delay=500ns"


def _load(fabric: Fabric, model: Model, rng: np.random.Generator, packets: int = 12) -> Workload:
    """Messages between random pairs, several of a flow, some after others or a barrier."""
    flows = int(rng.integers(1, 10))
    ends = np.array([rng.permutation(fabric.hosts)[:2] for _ in range(flows)])
    flow = np.repeat(np.arange(flows), rng.integers(1, 4, flows))
    m = len(flow)
    phase, after, on = rng.integers(0, 2, m), np.full(m, -1), np.zeros(m, int)
    phase = phase[np.lexsort((phase, flow))]  # a barrier must not wait for what comes after it
    for i in range(1, m):
        j = int(rng.integers(0, i))
        chained = ends[flow[j]][1] == ends[flow[i]][0]
        if phase[i] == phase[j] and (chained or ends[flow[j]][0] == ends[flow[i]][0]):
            after[i], on[i] = j, int(chained)
    return workload_of(
        *ends.T,
        rng.integers(1, packets * model.payload_bytes, m),
        _units(fabric, model, *ends.T),
        model,
        flow=flow,
        release_ps=rng.choice([0, 0, 1, 5_120, 300_000], m),
        after=after,
        on=on,
        phase=phase,
    )


def _units(fabric: Fabric, model: Model, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Traffic:
    """What whole-flow strategies place: data and ACKs of every flow, with header fields."""
    n = len(src)
    packed = fabric.addresses.packed(np.arange(fabric.hosts), False)
    ones = np.ones(n, np.int64)
    keys = PacketKeys(
        src=packed[src],
        dst=packed[dst],
        ipv6=np.zeros(n, np.bool_),
        protocol=np.full(n, 17, np.uint8),
        sport=(0xC000 + 77 * np.arange(n)).astype(np.uint16),
        dport=np.full(n, 4791, np.uint16),
        flow_label=np.zeros(n, np.uint32),
        dest_qp=np.arange(n, dtype=np.uint32),
    )
    hosts, flow = (src.astype(np.int32), dst.astype(np.int32)), np.arange(n, dtype=np.int32)
    data = Traffic(keys, *hosts, flow, 20 * ones, 80_000 * ones, 0 * ones, 0 * ones)
    return both_ways(data, model)


def _permutation(fabric: Fabric, model: Model, packets: int) -> Workload:
    hosts = np.arange(fabric.hosts)
    size = np.full(fabric.hosts, packets * model.payload_bytes)
    half = (hosts + fabric.hosts // 2) % fabric.hosts
    return workload_of(hosts, half, size, None, model)  # type: ignore[arg-type]


EITHER = (
    "switch-random",
    "switch-rr:acks=own",
    "jsq:acks=shortest",
    "drill:samples=1",
    "adaptive:buffer=8kB",
    "flowlet:gap=1us",
    "adaptive-flowlet:gap=1us",
    "conga:gap=1us",
    "host-spray:evs=5",
    "host-dr",
    "ofan",
    "ecmp:hash=crc32,seed=3",
    "wcmp",
    "subflow:k=3",
    "static:by=destination",
    "srv6",
    "assign",
)


@examples(80)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(FABRICS),
    st.sampled_from(EITHER),
    st.sampled_from([(64, 0, 1), (1000, 20, 1), (4096, 20, 3)]),
    st.sampled_from([None, 2, 5]),
    st.booleans(),
    st.booleans(),
)
@example(34915, FABRICS[0], "switch-random", (64, 0, 1), None, False, False)  # while busy
# A packet waits for a link whose wire is empty: during a gap, or the rest of a packet cut through.
@example(1, FABRICS[5], "switch-random", (1000, 20, 1), None, False, False)
@example(1, FABRICS[5], "switch-random", (1000, 0, 1), None, False, True)
def test_both_drivers_agree_on_every_packet(
    seed: int,
    spec: str,
    name: str,
    sizes: tuple[int, int, int],
    buffer: int | None,
    trims: bool,
    through: bool,
) -> None:
    payload, gap, ack_every = sizes
    model = Model(
        payload_bytes=payload,
        gap_bytes=gap,
        ack_every=ack_every,
        buffer_bytes=None if buffer is None else buffer * (payload + 64),
        trim_bytes=64 if trims else None,
        ecn_low_bytes=payload,
        ecn_high_bytes=3 * payload,
        cut_through=through,
        pfc=None,
    )
    fabric = parse_fabric(spec)
    load = _load(fabric, model, np.random.default_rng(seed))
    if seed % 2:
        load = with_waits(load, fabric.hosts, np.random.default_rng(seed))
    strategy = parse_packet_strategy(name)
    kept = {"keep_arrivals": True, "keep_sent": True, "load_bin_ps": 40_000}
    try:
        one = run_open_loop(load, fabric, strategy, model, seed, **kept)
    except UsageError:  # it does not fit the fabric
        assert fabric.ports > 1 or "fat-tree" in spec
        return
    two = run_event_driven(load, fabric, strategy, model, seed, **kept).engine
    assert one.sent_ps is not None and two.sent_ps is not None
    assert two.sent_ps.tolist() == one.sent_ps.tolist()
    assert one.arrived_ps is not None and two.arrived_ps is not None
    assert two.arrived_ps.tolist() == one.arrived_ps.tolist()
    assert two.started_ps.tolist() == one.started_ps.tolist()
    assert two.received_ps.tolist() == one.received_ps.tolist()
    assert two.completed_ps.tolist() == one.completed_ps.tolist()
    assert two.computed_ps.tolist() == one.computed_ps.tolist()
    if (one.completed_ps >= 0).all():  # the event-driven driver stops there
        for column in ("bytes", "packets", "max_packets", "max_bytes", "drops", "trims", "marks"):
            name = f"link_{column}"
            assert getattr(two, name).tolist() == getattr(one, name).tolist(), name
        assert (two.queue_histogram == one.queue_histogram).all()
        assert two.hops == one.hops
        assert one.loads is not None and two.loads is not None
        assert one.loads.sum(0).tolist() == one.link_bytes.tolist()
        assert one.queues is not None and two.queues is not None
        assert two.queues.tolist() == one.queues.tolist()
        waited = one.link_max_bytes > payload + model.header_bytes  # more than one packet
        assert one.queues.max(0)[waited].tolist() == one.link_max_bytes[waited].tolist()
        assert not one.queues[:, one.link_max_packets <= 1].any()
        assert (two.load_bin_ps, two.loads.tolist()) == (one.load_bin_ps, one.loads.tolist())


def _conserved(result: FeedbackResult) -> None:
    gone = result.tally.data_received + result.tally.trimmed_received + result.tally.data_lost
    assert result.tally.data_sent == gone + result.data_under_way


@examples(40)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(FABRICS[:3]),
    st.sampled_from(["reps:evs=64", "bitmap:evs=16", "plb", "hopper", "host-spray", "adaptive"]),
    st.sampled_from(["ideal", "sack", "go-back-n"]),
    st.sampled_from(["none", "nscc", "dcqcn"]),
    st.booleans(),
    st.sampled_from([0, 20_000_000, None]),
)
# A window of packets that is lost together is one timeout in a row, not one per packet.
@example(65522, FABRICS[2], "reps:evs=64", "sack", "nscc", False, 0)
def test_what_is_sent_arrives_in_the_end(
    seed: int,
    spec: str,
    name: str,
    recovery: str,
    control: str,
    trims: bool,
    convergence: int | None,
) -> None:
    if recovery == "go-back-n":  # for single paths: it takes every reordering for a loss
        name, trims = "host-spray:evs=1", False
    fabric = parse_fabric(spec)
    model = Model(
        payload_bytes=1000,
        buffer_bytes=5_000,
        trim_bytes=64 if trims else None,
        ecn_low_bytes=1_000,
        ecn_high_bytes=3_000,
    )
    rng = np.random.default_rng(seed)
    load = _load(fabric, model, rng, 30)
    transport = Transport(recovery=recovery, congestion=control, rto_ps=5_000_000)
    inner = np.flatnonzero(
        (fabric.links.source < fabric.switches) & (fabric.links.target < fabric.switches)
    )
    bad, lossy, slow = (int(i) for i in rng.choice(inner, 3, replace=False))
    events = (
        *flapping([bad], 100_000, 4_000_000, 700_000, 300_000),
        LinkEvent(0, lossy, "lossy", 0.2),
        # With trims the headers of what does not fit would fill a slow link, and nothing else.
        *([] if trims else [LinkEvent(50_000, slow, SLOW, 20e9)]),
    )
    failures = Failures(events, convergence)
    strategy = parse_packet_strategy(name)
    result = run_event_driven(
        load,
        fabric,
        strategy,
        model,
        seed,
        transport=transport,
        failures=failures,
        until_ps=10**11,
    )
    _conserved(result)
    assert (result.engine.completed_ps >= 0).all()
    if recovery != "go-back-n":
        assert result.tally.data_received - result.tally.duplicates == load.packet_start[-1]
    assert result.tally.sent_again == result.tally.data_sent - load.packet_start[-1]


def test_the_same_on_any_number_of_threads() -> None:
    fabric, model = parse_fabric("fat-tree:k=4,rate=800G"), Model(buffer_bytes=50_000)
    load = _permutation(fabric, model, 64)

    def run(name: str, stop: object) -> FeedbackResult:
        strategy, transport = parse_packet_strategy(name), Transport(recovery="sack")
        return run_event_driven(load, fabric, strategy, model, 3, transport=transport)

    names = ["reps", "bitmap", "reps", "switch-random", "reps", "bitmap"]
    found = dict(run_many(names, run, threads=3))
    for i, name in enumerate(names):
        alone = run(name, None)
        assert found[i].engine.completed_ps.tolist() == alone.engine.completed_ps.tolist()
        assert found[i].engine.link_bytes.tolist() == alone.engine.link_bytes.tolist()


def test_planes_carry_the_same_bytes() -> None:
    fabric, model = parse_fabric(PLANES), Model(pfc=None)
    load = _permutation(fabric, model, 203)
    result = run_event_driven(load, fabric, parse_packet_strategy("mrc:evs=12"), model, 1)
    spread = result.port_bytes.max(1) - result.port_bytes.min(1)
    assert (spread <= model.payload_bytes + model.header_bytes).all()
    assert (result.engine.completed_ps >= 0).all() and result.tally.sent_again == 0


def test_a_lost_path_is_dropped_and_comes_back() -> None:
    """While a spine of one plane is down, its EVs are bad on all queue pairs that used them; after
    it is back, answered probes make them good. The other planes are not touched."""
    fabric, model = parse_fabric(PLANES), Model(buffer_bytes=800_000)
    load = _permutation(fabric, model, 1_000)
    transport = Transport(recovery="sack", reordering_packets=512, rto_ps=40_000_000)
    spine = fabric.find_links("plane2.spine3").tolist()

    def run(until_ps: int | None) -> FeedbackResult:
        failures = Failures(outage(spine, 10_000_000, until_ps))
        strategy = parse_packet_strategy("mrc:evs=16,least=1,probe=10us,probes=2")
        return run_event_driven(
            load, fabric, strategy, model, 1, transport=transport, failures=failures
        )

    for result, state in ((run(None), ASSUMED_BAD), (run(40_000_000), GOOD)):
        assert (result.engine.completed_ps >= 0).all()
        _conserved(result)
        assert result.evs is not None and result.tally.probes > 0
        states = result.evs.table[:, : 4 * 4] & 3
        hit = 1 + 4 * 2  # plane 2 (from 1), spine 3 (from 1)
        assert (states[:, hit] == state).any()
        if state == GOOD:
            assert (states == GOOD).all()
        others = [ev for ev in range(16) if ev != hit]
        assert (states[:, others] == GOOD).all()


def test_a_lost_port_takes_its_plane_out_of_use() -> None:
    fabric, model = parse_fabric(PLANES), Model(buffer_bytes=800_000)
    load = _permutation(fabric, model, 1_000)
    failures = Failures(outage(port_links(fabric, 0, 2), 0))
    transport = Transport(recovery="sack", reordering_packets=512)
    strategy = parse_packet_strategy("mrc:evs=16")
    result = run_event_driven(
        load, fabric, strategy, model, 1, transport=transport, failures=failures
    )
    assert (result.engine.completed_ps >= 0).all()
    assert result.port_bytes[0, 2] == 0  # its own port
    to_host_0 = int(np.flatnonzero(load.dst == 0)[0])
    assert result.port_bytes[to_host_0, 2] < result.port_bytes[to_host_0, 0] / 4
    times = result.engine.completed_ps
    assert times[0] > 1.2 * np.median(times)  # a quarter of its bandwidth is gone


def test_mrc_says_what_it_needs() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2")
    with pytest.raises(UsageError, match="needs a fabric with planes"):
        parse_packet_strategy("mrc").rules(_permutation(fabric, Model(pfc=None), 1), fabric, 0)
    planes = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2")
    for option, words in (("probe=10ns", "1us or more"), ("evs=3", "multiple of the 2 planes")):
        with pytest.raises(UsageError, match=words):
            strategy = parse_packet_strategy(f"mrc:{option}")
            strategy.rules(_permutation(planes, Model(pfc=None), 1), planes, 0)
    with pytest.raises(UsageError, match="recovery must be one of"):
        Transport(recovery="prayer")


@pytest.mark.parametrize("apart", [0, 1])
def test_full_queues_serve_the_flows_of_an_incast_alike(apart: int) -> None:
    """Hosts at line rate keep their phases: with tail drop and no jitter one flow has the link
    until it is done, also when the flows do not begin together."""
    fabric = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=9,rate=100G,delay=500ns")
    begin = apart * np.random.default_rng(1).integers(0, 338_000, 8)

    def ends(model: Model) -> NDArray[np.int64]:
        size = np.full(8, 1_024_000)
        load = workload_of(
            np.arange(1, 9),
            np.zeros(8, int),
            size,
            None,
            model,
            release_ps=begin,  # type: ignore[arg-type]
        )
        strategy, transport = parse_packet_strategy("switch-random"), Transport(recovery="ideal")
        result = run_event_driven(load, fabric, strategy, model, 1, transport=transport)
        _conserved(result)
        return np.sort(result.engine.completed_ps)

    fair = ends(Model(buffer_bytes=416_000))
    assert fair[0] > 0.9 * fair[-1]
    locked = ends(Model(buffer_bytes=416_000, drop="tail", jitter=0.0))
    assert locked[0] < 0.2 * locked[-1]
    assert fair[-1] <= 1.01 * locked[-1]


@pytest.mark.parametrize("congestion", ["none", "dcqcn", "swift"])
@pytest.mark.parametrize("ack_every", [1, 3])
def test_without_losses_it_makes_no_difference_whether_packets_are_tracked(
    congestion: str, ack_every: int
) -> None:
    """Without recovery only the number of packets in flight is known, which takes no memory."""
    model = Model(ack_every=ack_every, ecn_low_bytes=8_000, ecn_high_bytes=40_000)
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns")
    load = collective("permutation", fabric, model, 1 << 19, 1)
    strategy = parse_packet_strategy("reps")
    counted, tracked = (
        run_event_driven(
            load, fabric, strategy, model, 1, transport=Transport(recovery, congestion=congestion)
        )
        for recovery in ("none", "ideal")
    )
    assert counted.tally == tracked.tally and counted.engine.link_marks.sum() > 0
    for name in ("completed_ps", "received_ps", "link_bytes", "link_max_bytes", "link_marks"):
        columns = (getattr(one.engine, name) for one in (counted, tracked))
        np.testing.assert_array_equal(*columns)


def test_passages_of_watched_links_are_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the links to hosts they are the arrivals there; the room for them is emptied when full."""
    monkeypatch.setattr(event_driven, "PASSAGES_AT_ONCE", 7)
    fabric, model = parse_fabric(FABRICS[0]), Model(pfc=None)
    load = _load(fabric, model, np.random.default_rng(5))
    links = fabric.links
    watched = (links.source == 0) | (links.target >= fabric.switches)
    found = run_event_driven(
        load, fabric, parse_packet_strategy("ecmp"), model, 2, keep_arrivals=True,
        watched=watched.astype(np.uint8),
    )  # fmt: skip
    passages, arrived = found.passages, found.engine.arrived_ps
    assert arrived is not None and (np.diff(passages["time"]) >= 0).all()
    assert len(passages) > 21 and watched[passages["link"]].all()
    data = passages[passages["key"] & ACK == 0]
    number = load.packet_start[data["key"] >> NUMBER_BITS] + (data["key"] & NUMBER_MASK)
    at_host = links.target[data["link"]] >= fabric.switches
    assert (np.sort(number[at_host]) == np.arange(len(arrived))).all()
    assert (data["time"][at_host] == arrived[number[at_host]]).all()
    earlier = dict(zip(number[~at_host].tolist(), data["time"][~at_host].tolist(), strict=True))
    assert earlier and all(time < arrived[packet] for packet, time in earlier.items())
    assert (data["trail"][at_host] >= 2).all() and (data["stamp"] <= data["time"]).all()
    acks = passages[passages["key"] & ACK != 0]
    at_sender = links.target[acks["link"]] >= fabric.switches
    assert np.count_nonzero(at_sender) == len(arrived)  # each packet is acknowledged
