"""PFC against a plain event simulator, packet for packet, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from pfc_twin import PfcTwin

from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.hosts.parameters import Transport
from rocescope.replay.packets.links.pauses import threshold
from rocescope.replay.packets.model.classes import TrafficClass
from rocescope.replay.packets.model.model import NEVER, Model, Workload
from rocescope.replay.packets.model.pause_state import no_pauses
from rocescope.replay.packets.model.pfc import Pfc
from rocescope.replay.packets.offers.offered import workload_of
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
