"""The open-loop driver against a plain event simulator of the same model, packet for packet.

What the open-loop driver does not run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from packet_twin import Twin
from waiting_nodes import with_waits

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import Model, Workload
from rocescope.replay.packets.model.rules import Rules, Strategy
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import needs_events
from rocescope.replay.strategies.registry import (
    PACKET_STRATEGIES,
    STRATEGIES,
    parse_packet_strategy,
)

FABRICS = (
    "leaf-spine:leaves=2,spines=3,hosts=2,rate=100G,delay=40ns",
    "leaf-spine:leaves=3,spines=2,hosts=2,rate=400G,delay=7ns,uplink_rate=133G",
    "fat-tree:k=4,rate=800G,delay=500ns",
    "fat-tree:k=4,rate=800G,delay=20ns,down=leaf1-spine1,slow=leaf3-spine3:70G",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G,delay=30ns",
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, Fabric, Model]:
    fabric = parse_fabric(draw(st.sampled_from(FABRICS)))
    small = draw(st.booleans())
    payload = draw(st.sampled_from((64, 1000, 4096)))
    buffer = draw(st.none() | st.integers(payload + 64, 8 * (payload + 64)))
    low = draw(st.none() | st.integers(0, 4 * payload))
    model = Model(
        payload_bytes=payload,
        gap_bytes=draw(st.sampled_from((0, 20))),
        ack_every=draw(st.sampled_from((1, 1, 3))),
        buffer_bytes=buffer,
        trim_bytes=draw(st.sampled_from((None, 64))),
        ecn_low_bytes=low,
        ecn_high_bytes=None if low is None else low + draw(st.integers(0, 4 * payload)),
        ecn_most=draw(st.sampled_from((1.0, 0.2))),
        ecn_last_hop=draw(st.booleans()),
        drop=draw(st.sampled_from(("random", "tail"))),
        jitter=draw(st.sampled_from((None, 0.0, 0.1, 1.0))),
        pfc=None,
    )
    hosts = fabric.hosts
    flows = draw(st.integers(1, 4 if small else 12))
    ends = [draw(st.permutations(range(hosts)))[:2] for _ in range(flows)]
    each = [draw(st.integers(1, 3)) for _ in range(flows)]
    flow = np.repeat(np.arange(flows), each)
    m = len(flow)
    phase = np.array([draw(st.sampled_from((0, 0, 1))) for _ in range(m)])
    after, on = np.full(m, -1), np.zeros(m, int)
    for i in range(m):
        for j in draw(st.permutations(range(m)))[:2]:
            chained = ends[flow[j]][1] == ends[flow[i]][0]
            same = ends[flow[j]][0] == ends[flow[i]][0]
            if j < i and phase[i] == phase[j] and (chained or same) and draw(st.booleans()):
                after[i], on[i] = j, int(chained)
    workload = workload_of(
        np.array([a for a, _ in ends]),
        np.array([b for _, b in ends]),
        np.array([draw(st.integers(1, 12 * payload)) for _ in range(m)]),
        None,  # type: ignore[arg-type]
        model,
        flow=flow,
        release_ps=np.array([draw(st.sampled_from((0, 0, 1, 5_120, 300_000))) for _ in range(m)]),
        after=after,
        on=on,
        phase=phase,
    )
    if draw(st.booleans()):
        workload = with_waits(workload, hosts, np.random.default_rng(draw(st.integers(0, 1 << 30))))
    return workload, fabric, model


NAMES = {
    "switch-random": "switch-random",
    "jsq": "jsq:acks=shortest",
    "host-spray": "host-spray:evs=5",
}


@examples(60)
@given(cases(), st.sampled_from(tuple(NAMES)), st.integers(0, 1 << 40))
def test_every_packet_as_in_a_plain_event_simulator(
    case: tuple[Workload, Fabric, Model], name: str, seed: int
) -> None:
    workload, fabric, model = case
    twin = Twin(workload, fabric, model, name, seed)
    twin.run()
    strategy = parse_packet_strategy(NAMES[name])
    result = run_open_loop(workload, fabric, strategy, model, seed, keep_arrivals=True)
    assert result.arrived_ps is not None
    assert result.arrived_ps.tolist() == twin.arrived
    assert result.started_ps.tolist() == twin.started
    assert result.received_ps.tolist() == twin.received
    assert result.completed_ps.tolist() == twin.completed
    assert result.computed_ps.tolist() == twin.computed
    assert result.link_bytes.tolist() == [link.bytes for link in twin.links]
    assert result.link_max_packets.tolist() == twin.most.tolist()
    assert result.link_drops.tolist() == twin.drops.tolist()
    assert result.link_trims.tolist() == twin.trims.tolist()
    assert result.link_marks.tolist() == twin.marks.tolist()
    assert result.hops == result.link_packets.sum() == sum(link.packets for link in twin.links)


PLANES = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2,rate=100G")
HOSTS = {"hopper", "mixed", "plb", "reps", "bitmap", "mrc"}


def _load() -> Workload:
    return workload_of(
        np.array([0]),
        np.array([3]),
        np.array([40_000]),
        None,
        Model(pfc=None),  # type: ignore[arg-type]
    )


def test_strategies_that_need_feedback_say_so() -> None:
    every = [parse_packet_strategy(name) for name in (*STRATEGIES, *PACKET_STRATEGIES)]
    assert {one.name for one in every if one.reacts} == HOSTS
    assert {one.name for one in every if needs_events(one)} == HOSTS
    assert {one.name for one in every if one.static_paths} == {"mrc"}


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_a_strategy_that_needs_feedback_is_refused(name: str) -> None:
    """Its hosts would learn nothing, and the result would look like any other."""
    with pytest.raises(UsageError, match=f"{name} needs feedback"):
        run_open_loop(_load(), PLANES, parse_packet_strategy(name), Model(pfc=None))


def test_hosts_that_learn_are_refused_even_where_nothing_is_said() -> None:
    @dataclass(frozen=True)
    class Silent(Strategy):
        name: str = "silent"

        def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
            return parse_packet_strategy("reps").rules(workload, fabric, seed)

    with pytest.raises(UsageError, match="silent needs feedback"):
        run_open_loop(_load(), PLANES, Silent(), Model(pfc=None))
