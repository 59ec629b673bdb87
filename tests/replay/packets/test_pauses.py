"""PFC: buffers, pause frames, pauses and their outcome.

PFC against a plain event simulator, packet for packet, and what it promises.

Victims of pauses, and deadlocks, on fabrics where they can be told in advance.

Buffers of switches before the first packet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from pfc_twin import PfcTwin

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.failures import LINK_DOWN, LINK_RATE, Scheduled
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model import pause_state as ps
from rocescope.replay.packets.model.arrays import fabric_arrays
from rocescope.replay.packets.model.model import NEVER, EngineResult, Model, Workload
from rocescope.replay.packets.model.pause_state import Pauses, new_pauses, no_pauses, reverse_links
from rocescope.replay.packets.model.queueing import PauseOutcome, Pfc, TrafficClass
from rocescope.replay.packets.model.wheel import new_wheel
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.pauses import _circle, threshold
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRICS = (
    "leaf-spine:leaves=2,spines=1,hosts=3,rate=100G,delay=40ns",
    "leaf-spine:leaves=2,spines=3,hosts=2,rate=100G,delay=2us",
    "leaf-spine:leaves=3,spines=2,hosts=2,rate=400G,delay=7ns,uplink_rate=133G",
    "leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2,rate=100G,delay=300ns",
    "fat-tree:k=4,rate=800G,delay=20ns,slow=leaf3-spine3:70G",
)
CLASSES = (
    (TrafficClass(),),
    (TrafficClass("data", 7), TrafficClass("background", 3, lossless=False, alpha=1 / 16)),
    (TrafficClass("first"), TrafficClass("second", xoff_bytes=3_000)),
    (TrafficClass("a", 1), TrafficClass("b", 4), TrafficClass("c", lossless=False, xoff_bytes=0)),
)
PAYLOAD = 1000


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, Fabric, Model]:
    """Incasts and random pairs with small buffers."""
    fabric = parse_fabric(draw(st.sampled_from(FABRICS)))
    packet = PAYLOAD + 64
    pfc = Pfc(
        alpha=draw(st.sampled_from((1 / 64, 1 / 8, 1.0))),
        xoff_bytes=draw(st.none() | st.integers(0, 4 * packet)),
        xon_bytes=draw(st.sampled_from((None, 0))),
        headroom_bytes=draw(
            st.sampled_from((None, None, 0, packet - 1, packet, 5 * packet, 100_000))
        ),
        reaction_ps=draw(st.sampled_from((0, 1, 100_000, 1_000_000))),
        quanta=draw(st.sampled_from((None, None, 20, 200))),
        storm_ps=1_000_000,
    )
    classes = draw(st.sampled_from(CLASSES))
    model = Model(
        payload_bytes=PAYLOAD,
        gap_bytes=draw(st.sampled_from((0, 20))),
        ack_every=draw(st.sampled_from((1, 3))),
        ecn_low_bytes=2 * packet,
        ecn_high_bytes=8 * packet,
        jitter=draw(st.sampled_from((None, 0.1))),
        pfc=pfc,
        classes=classes,
        cut_through=draw(st.booleans()),
    )
    count = draw(st.integers(2, 10))
    goal = draw(st.integers(0, fabric.hosts - 1))
    ends = []
    for _ in range(count):
        a, b = draw(st.permutations(range(fabric.hosts)))[:2]
        ends.append((a, goal) if a != goal and draw(st.integers(0, 3)) else (a, b))
    load = workload_of(
        np.array([a for a, _ in ends]),
        np.array([b for _, b in ends]),
        np.array([draw(st.integers(1, 60 * PAYLOAD)) for _ in ends]),
        None,  # type: ignore[arg-type]
        model,
        release_ps=np.array([draw(st.sampled_from((0, 0, 5_120, 300_000))) for _ in ends]),
    )
    if len(classes) > 1:
        of = [draw(st.integers(0, len(classes) - 1)) for _ in ends]
        load = load._replace(priority=np.array(of, np.uint8))
    return load, fabric, model


@pytest.mark.parametrize("alpha", [1 / 1024, 1 / 3, 64])
@pytest.mark.parametrize("size", [400 * 10**9, (1 << 40) - 1, 12_345_678])
def test_thresholds_of_the_largest_buffers(size: int, alpha: float) -> None:
    """As with integers of any size."""
    pauses = no_pauses()
    pauses.rows["limit"][0] = NEVER
    pauses.pools[0] = 5_000, size
    pauses.rows["alpha"][0] = round(alpha * 2**20)
    free = size - 5_000
    found = int(threshold(pauses, np.int64(0)))
    assert found == min(round(alpha * 2**20) * free >> 20, free)


@examples(60)
@given(cases(), st.sampled_from(("switch-random", "jsq:acks=shortest")), st.integers(0, 1 << 40))
def test_every_packet_and_pause_as_in_a_plain_simulator(
    case: tuple[Workload, Fabric, Model], name: str, seed: int
) -> None:
    load, fabric, model = case
    twin = PfcTwin(load, fabric, model, name.partition(":")[0], seed)
    twin.run()
    strategy = parse_packet_strategy(name)
    found = run_event_driven(load, fabric, strategy, model, seed, keep_arrivals=True)
    result, pauses = found.engine, found.engine.pauses
    assert pauses is not None and result.arrived_ps is not None
    assert result.arrived_ps.tolist() == twin.arrived
    assert result.completed_ps.tolist() == twin.completed
    assert result.link_drops.tolist() == twin.drops.tolist()
    assert result.link_marks.tolist() == twin.marks.tolist()
    assert result.link_max_packets.tolist() == twin.most.tolist()
    assert pauses.pauses.tolist() == [own.pauses for own in twin.buffers]
    assert pauses.most_headroom.tolist() == [own.most for own in twin.buffers]
    assert pauses.no_room.tolist() == [own.lost for own in twin.buffers]
    assert pauses.frames.tolist() == [own.sent for own in twin.buffers]
    lossy = not all(one.lossless for one in model.classes)
    assert pauses.no_room.sum() == result.link_drops.sum() or lossy
    ended = np.array([not own.paused for own in twin.buffers])
    assert pauses.paused_ps[ended].tolist() == [o.total for o in twin.buffers if not o.paused]
    assert pauses.storm_ps[ended].tolist() == [o.storm for o in twin.buffers if not o.paused]
    assert pauses.longest_ps[ended].tolist() == [o.longest for o in twin.buffers if not o.paused]
    assert pauses.victims is not None
    inner = fabric.links.source < fabric.switches
    count = len(pauses.classes)
    causes = np.unique(np.flatnonzero(pauses.roots) // count)
    victims = np.array(twin.victims(causes.tolist()))
    assert pauses.victims[::count][inner].tolist() == victims[inner].tolist()
    tally = found.tally
    assert tally.data_sent == tally.data_received + tally.data_lost + found.data_under_way
    assert model.pfc is not None
    timely = model.pfc.quanta is None or model.pfc.quanta > 20
    if model.pfc.headroom_bytes is None and timely and not lossy:  # what the cable needs: lossless
        assert not result.link_drops.any() and (result.completed_ps >= 0).all()
        assert pauses.deadlock == ()


@pytest.mark.parametrize("headroom", [0, 1_000])
def test_a_headroom_below_one_packet_pauses_too(headroom: int) -> None:
    """Three hosts send to one, with recovery: what is dropped is sent after the pauses."""
    fabric = parse_fabric(FABRICS[0])
    model = Model(payload_bytes=PAYLOAD, pfc=Pfc(xoff_bytes=20_000, headroom_bytes=headroom))
    size = np.full(3, 200 * PAYLOAD)
    load = workload_of(
        np.arange(3), np.full(3, 3), size, None, model  # type: ignore[arg-type]
    )  # fmt: skip
    strategy = parse_packet_strategy("switch-random")
    sack = Transport(recovery="sack", rto_ps=10_000_000)
    result = run_event_driven(load, fabric, strategy, model, 1, transport=sack).engine
    pauses = result.pauses
    assert pauses is not None and pauses.pauses.sum() > 10 and pauses.roots.any()
    assert pauses.no_room.any() and not pauses.most_headroom.any()
    assert (result.completed_ps >= 0).all()


RING = """
name: ring
defaults: {rate: 100G, delay: 500ns}
nodes:
  s1: {tier: 1}
  s2: {tier: 1}
  s3: {tier: 1}
  h1: {kind: host}
  h2: {kind: host}
  h3: {kind: host}
links: [[h1, s1], [h2, s2], [h3, s3], [s1, s2], [s2, s3], [s3, s1]]
routes:
  s1: {h1: [h1], h2: [s2], h3: [s2]}
  s2: {h1: [s3], h2: [h2], h3: [s3]}
  s3: {h1: [s1], h2: [s1], h3: [h3]}
"""


def _run(
    fabric: Fabric, model: Model, src: ArrayLike, dst: ArrayLike, size: int
) -> tuple[EngineResult, PauseOutcome]:
    many = np.full(len(np.asarray(src)), size)
    load = workload_of(np.asarray(src), np.asarray(dst), many, None, model)  # type: ignore[arg-type]
    result = run_packets(load, fabric, parse_packet_strategy("switch-random"), model, 1)
    assert result.pauses is not None
    return result, result.pauses


@pytest.mark.parametrize(("xoff", "locks"), [(20_000, True), (10_000_000, False)])
def test_a_circle_of_waits_is_named(tmp_path: Path, xoff: int, locks: bool) -> None:
    """Three flows, each over two links of a ring: with small buffers each link waits for the next.
    With buffers for everything in flight nothing waits."""
    (tmp_path / "ring.yaml").write_text(RING)
    fabric = parse_fabric(str(tmp_path / "ring.yaml"))
    model = Model(pfc=Pfc(xoff_bytes=xoff, shared_bytes=20_000_000))
    result, pauses = _run(fabric, model, [0, 1, 2], [2, 0, 1], 1_000_000)
    assert not result.link_drops.any()
    names = [fabric.link_name(link) for link in pauses.deadlock]
    if locks:
        assert result.completion_ps is None
        at = names.index("s1>s2")
        assert names[at:] + names[:at] == ["s1>s2", "s2>s3", "s3>s1"]
        assert (pauses.paused_ps[list(pauses.deadlock)] > 0).all()
        # These pauses never end, so they are storms, however soon nothing more happened.
        assert pauses.endless[list(pauses.deadlock)].all()
        assert (pauses.storm_ps[pauses.endless] >= pauses.storm_after_ps).all()
    else:
        assert result.completion_ps is not None and not names and not pauses.endless.any()


def test_the_victim_of_an_incast_shares_its_fate() -> None:
    """Seven hosts send to one; the eighth host of their leaf sends to an idle host. Without PFC it
    is as fast as alone; with PFC it waits for the pauses of its leaf's only uplink: the closed form
    of head-of-line blocking is an eighth of the incast's rate, so they end together."""
    fabric = parse_fabric(
        "leaf-spine:leaves=2,spines=1,hosts=8,rate=100G,delay=500ns,uplink_rate=800G"
    )
    src, dst, size = range(8), [8] * 7 + [9], 512_000
    assert _alone(fabric, size) < 1.2 * size * 80
    result, pauses = _run(fabric, Model(pfc=Pfc(xoff_bytes=20_000)), src, dst, size)
    ends = result.completed_ps
    assert ends[7] > 0.9 * ends[:7].max() > 5 * _alone(fabric, size)
    assert [fabric.link_name(int(x)) for x in np.flatnonzero(pauses.roots)] == ["leaf2>host9"]
    assert pauses.victims is not None and pauses.victim_flows == 1
    paused = {fabric.link_name(int(x)) for x in np.flatnonzero(pauses.pauses)}
    assert {"spine1>leaf2", "leaf1>spine1", "host8>leaf1"} <= paused  # three hops back
    at = fabric.find_links("host8>leaf1")[0]
    assert pauses.victims[at] == 1 and pauses.victims[fabric.find_links("host1>leaf1")[0]] == 0
    assert (pauses.longest_ps <= pauses.paused_ps).all() and not pauses.no_room.any()


def test_a_circle_at_the_time_limit_may_pass(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING)
    fabric = parse_fabric(str(tmp_path / "ring.yaml"))
    model = Model(pfc=Pfc(xoff_bytes=20_000, shared_bytes=20_000_000))
    src, dst = np.array([0, 1, 2]), np.array([2, 0, 1])
    load = workload_of(src, dst, np.full(3, 1_000_000), None, model)  # type: ignore[arg-type]
    strategy = parse_packet_strategy("switch-random")
    whole = run_event_driven(load, fabric, strategy, model, 1).engine
    assert whole.pauses is not None and whole.pauses.deadlock and not whole.pauses.may_pass
    assert not whole.out_of_time
    early = run_event_driven(load, fabric, strategy, model, 1, until_ps=10_000_000).engine
    assert early.pauses is not None and early.out_of_time and early.pauses.may_pass
    assert not early.pauses.endless.any()


def _alone(fabric: Fabric, size: int) -> int:
    """Completion of the victim without the incast."""
    result, pauses = _run(fabric, Model(pfc=Pfc()), [7], [9], size)
    assert not pauses.pauses.any() and pauses.victim_flows == 0
    return int(result.completion_ps or 0)


def test_circles() -> None:
    assert _circle({}) == ()
    assert _circle({1: [2], 2: [3], 3: []}) == ()
    assert _circle({1: [2], 2: [3], 3: [2]}) == (2, 3)
    assert _circle({4: [4]}) == (4,)
    assert _circle({1: [2, 3], 2: [], 3: [5], 5: [1]}) == (1, 3, 5)


FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=3,uplinks=2,rate=100G,delay=500ns")
"""A leaf has seven ports of 100 Gb/s."""


def _new(
    pfc: Pfc,
    flows: int = 3,
    rows: Sequence[tuple[int, int, int, int]] = (),
    ecn: int | None = None,
    fabric: Fabric = FABRIC,
) -> Pauses:
    arrays = fabric_arrays(fabric)
    source = fabric.links.source
    plan = Scheduled(fabric, arrays.route[None], np.array(rows, np.int64).reshape(-1, 4))
    rates = plan.rates(arrays.ps_per_byte_q20)
    wheel, names = new_wheel(1, 1, 1), fabric.nodes.names
    model = Model(pfc=pfc, ecn_low_bytes=ecn, ecn_high_bytes=ecn)
    return new_pauses(arrays, source, model, 4160, flows, wheel, rates, names)


def test_parallel_cables_keep_their_order() -> None:
    source, target = FABRIC.links.source, FABRIC.links.target
    back = reverse_links(source, target)
    assert (source[back] == target).all() and (target[back] == source).all()
    assert (back[back] == np.arange(len(back))).all()
    one_way = reverse_links(source[:1], target[:1])
    assert one_way.tolist() == [-1]


def test_headroom_is_taken_from_the_buffer() -> None:
    needed = 4 * 4160 + 64 + (2 * 500_000 + 100_000) // 80 + 1
    pauses = _new(Pfc())
    into = FABRIC.links.target < FABRIC.switches
    assert (pauses.rows["room"][into] == needed).all()
    assert (pauses.rows["room"][~into] == 0).all()
    assert pauses.pools["size"][0] == 7 * 100 * 3_200 - 7 * needed
    assert pauses.held.shape == (len(into), 3)


def test_slow_links_have_room_for_packets() -> None:
    """Ports of 100 Mb/s: 3.2 kB per Gb/s is less than one packet."""
    slow = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=3,uplinks=2,rate=100M,delay=500ns")
    pauses = _new(Pfc(), fabric=slow)
    assert pauses.pools["size"][0] + 7 * pauses.rows["room"][0] == 7 * 16 * 4160


def test_headroom_is_enough_for_every_rate_of_its_cable() -> None:
    link = int(FABRIC.find_links("leaf1>spine1")[0])
    back = int(_new(Pfc()).rows["reverse"][link])
    ways = ((800, 100), (100, 10))  # rates of the link and of the frames at some time, Gb/s
    for forward, frames in ways:
        q20 = [round(8e3 * (1 << 20) / rate) for rate in (forward, frames)]
        rows = [(7, LINK_RATE, link, q20[0]), (8, LINK_RATE, back, q20[1]), (9, LINK_DOWN, 0, 0)]
        needed = 4 * 4160 + 64 + 1_100_000 * forward // 8000 + 1
        needed += int((forward / frames - 1) * (4160 + 64))
        pauses = _new(Pfc(), rows=rows)
        assert pauses.rows["needed"][link] == pauses.rows["room"][link] == needed
        short = _new(Pfc(headroom_bytes=20_000), rows=rows).rows[link]
        assert short["room"] == 20_000 and short["needed"] == needed


def test_victims_of_very_many_flows_are_not_counted() -> None:
    assert _new(Pfc(), ps.MOST_CELLS).held.shape == (1, 1)


@pytest.mark.parametrize(
    ("pfc", "words"),
    [
        (
            Pfc(shared_bytes=100_000),
            "leaf1: .*headroom of 7 ports, with links of up to 0.5 us, takes",
        ),
        (Pfc(xoff_bytes=10**7), "xoff .* exceeds the shared buffer.*--lossless pfc:xoff="),
        (Pfc(xon_bytes=10**7), "xon .* exceeds the shared buffer.*--lossless pfc:xon="),
        (Pfc(headroom_bytes=10**6), "is too small: .*pfc:buffer=16MB.*smaller headroom="),
    ],
)
def test_thresholds_must_fit_the_buffer(pfc: Pfc, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _new(pfc)


def test_the_buffer_that_an_error_names_is_enough() -> None:
    long = parse_fabric("leaf-spine:leaves=4,spines=2,hosts=2,rate=100G,delay=100us")
    with pytest.raises(UsageError, match=r"leaf1: .*pfc:buffer=(\d+)MB\)$") as caught:
        _new(Pfc(), fabric=long)
    found = re.search(r"buffer=(\d+)MB", str(caught.value))
    assert found is not None
    _new(Pfc(shared_bytes=int(found[1]) * 10**6), fabric=long)


def test_marks_that_never_come_are_an_error() -> None:
    free = int(_new(Pfc()).pools["size"].min())
    _new(Pfc(), ecn=free)
    with pytest.raises(UsageError, match=r"spine1: Kmin of --model ecn= .* exceeds .*pfc:buffer="):
        _new(Pfc(), ecn=free + 1)
