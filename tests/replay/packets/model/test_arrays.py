"""Where switches can forward a packet that they have not received in full."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.model.arrays import WHOLE, fabric_arrays, with_cut_through
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
