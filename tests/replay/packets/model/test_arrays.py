"""Where switches can forward a packet that they have not received in full, and ports in turn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.model.arrays import (
    NO_ROUTE,
    WHOLE,
    fabric_arrays,
    ports_in_turn,
    with_cut_through,
)
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.packets.offers.offered import workload_of
from rocescope.replay.packets.run import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,delay=500ns")
STRATEGY = parse_packet_strategy("switch-random")


def test_no_link_that_leaves_may_be_faster() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,uplink_rate=200G")
    arrays = with_cut_through(fabric_arrays(fabric), fabric.links.source, 64)
    through = {fabric.link_name(int(link)) for link in np.flatnonzero(arrays.header_bytes < WHOLE)}
    assert "host1>leaf1" not in through and "leaf1>host1" not in through
    assert {"leaf1>spine1", "spine2>leaf2"} <= through


def test_cut_through_saves_the_transmission_at_each_switch() -> None:
    """One packet over four links: its header at three switches in place of all of it."""
    ends = {}
    for through, pfc in itertools.product((False, True), (None, Model().pfc)):
        model = Model(cut_through=through, pfc=pfc)
        load = workload_of(
            np.array([0]), np.array([2]), np.array([4096]), None, model  # type: ignore[arg-type]
        )  # fmt: skip
        result = run_packets(load, FABRIC, STRATEGY, model, 1)
        assert result.completed_ps[0] == bounds(load, FABRIC, model).message_ps[0]
        ends[through, pfc is None] = int(result.completed_ps[0])
    assert ends[True, True] == ends[True, False]
    assert ends[False, True] - ends[True, True] == 3 * (4160 - 64) * 80


@pytest.mark.parametrize("seed", range(4))
def test_no_run_beats_the_bound_of_cut_through(seed: int) -> None:
    model = Model(cut_through=True)
    load = collective("random", FABRIC, model, 9_000, seed)
    result, bound = run_packets(load, FABRIC, STRATEGY, model, seed), bounds(load, FABRIC, model)
    assert (result.completed_ps >= bound.message_ps).all()
    assert (result.completion_ps or 0) >= bound.completion_ps


@pytest.mark.parametrize("damaged", [False, True])
def test_flows_take_the_usable_ports_of_their_host_in_turn(damaged: bool) -> None:
    """Against plain Python; with and without hosts that lack a port."""
    fabric = parse_fabric("multi-plane:planes=3,leaves=2,spines=1,hosts=2")
    arrays = fabric_arrays(fabric)
    if damaged:  # host 0 has lost a port, and plane 2 its way from host 1 to the second leaf
        switch = arrays.host_switch.copy()
        switch[0, 1] = -1
        route = arrays.route.copy()
        route[switch[1, 2], arrays.host_edge[2]] = NO_ROUTE
        arrays = arrays._replace(host_switch=switch, route=route)
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
    taken = [0] * 4
    expected = []
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        edge = int(arrays.host_edge[d])
        switches = enumerate(arrays.host_switch[s].tolist())
        usable = [port for port, at in switches if at >= 0 and arrays.route[at, edge] != NO_ROUTE]
        expected.append(usable[taken[s] % len(usable)])
        taken[s] += 1
    assert ports_in_turn(arrays, src, dst).tolist() == expected
    assert len(set(expected)) == 3
