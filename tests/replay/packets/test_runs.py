"""Loads over time of links and layers."""

from __future__ import annotations

import numpy as np

from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import PS, Model
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import MOST_CELLS, loads_over_time, stretch_ps
from rocescope.replay.strategies.registry import parse_packet_strategy

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


def test_loads_are_joined_until_they_have_few_numbers() -> None:
    load = workload_of(np.array([0]), np.array([2]), np.array([1 << 20]), None, MODEL)
    strategy = parse_packet_strategy("jsq")
    found = run_open_loop(load, FABRIC, strategy, MODEL, load_bin_ps=PS)
    assert found.loads is not None and found.loads.size <= MOST_CELLS
    loads, queues, length = loads_over_time(found)
    assert loads.sum(0).tolist() == found.link_bytes.tolist() and queues.shape == loads.shape
    assert length == found.load_bin_ps // PS
    assert stretch_ps(load, 0, FABRIC) == 8 * 332_800 // PS * PS  # eight packets of 4160 B


def test_a_layer_that_carries_nothing_has_no_loads_over_time() -> None:
    words = {"pattern": "permutation:message-size=4096", "transport": "recovery=none"}
    case = PreparedReplay(ReplayRequest(FABRIC.name, ("jsq",), fail=("spine1",), **words))
    result, _ = case.by_packets(("jsq",), None)
    layers = {layer.layer: layer for layer in result.strategies[0].layers}
    assert layers["host-leaf"].over_time is not None
    assert layers["leaf-spine"].over_time is None and not layers["leaf-spine"].wire_bytes
