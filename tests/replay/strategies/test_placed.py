"""Whole-flow strategies on the packet engine where hosts have several ports."""

from __future__ import annotations

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import collective
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.registry import parse_packet_strategy


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
