"""Reordering at the receivers: beside a plain twin, the analyzer and RFC 4737's example."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from received_table import received_flows

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.model.model import TRIMMED, Model
from rocescope.replay.packets.offers.collectives import collective
from rocescope.replay.packets.received.reordering import Order, reordering
from rocescope.replay.packets.run import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

CLOS = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")


def of_flows(*times: list[int], trimmed: tuple[int, ...] = ()) -> Order:
    """Arrival times of the packets of each flow by number, -1 for none."""
    flat = [time for flow in times for time in flow]
    flags = np.zeros(len(flat), np.uint8)
    flags[list(trimmed)] = TRIMMED >> 56
    workload: Any = SimpleNamespace(
        packet_start=np.cumsum([0, *map(len, times)]), flow_start=np.arange(len(times) + 1)
    )
    result: Any = SimpleNamespace(arrived_ps=np.array(flat, np.int64), arrived_flags=flags)
    return reordering(workload, result)


def twin(*times: list[int]) -> Order:
    """RFC 4737, 3 and 4.2.2, over the arrivals in order; packets that arrive together are in
    order of their numbers."""
    packets = late = extent = 0
    for flow in times:
        arrivals = [n for n in sorted(range(len(flow)), key=lambda n: (flow[n], n)) if flow[n] >= 0]
        packets += len(arrivals)
        for i, number in enumerate(arrivals):
            above = [j for j in range(i) if arrivals[j] > number]
            late += bool(above)
            extent = max(extent, i - above[0] if above else 0)
    return Order(packets, late, extent)


def test_the_example_of_the_metrics_page() -> None:
    # arrivals 1 2 3 5 6 7 8 4 9 10: only 4 is reordered, with an extent of 4
    assert of_flows([1, 2, 3, 8, 4, 5, 6, 7, 9, 10]) == Order(10, 1, 4)
    assert of_flows([5, 6], [1, 2]) == Order(4, 0, 0)  # of flows of their own


def test_packets_that_do_not_arrive_whole_do_not_count() -> None:
    assert of_flows([3, -1, 2]) == Order(2, 1, 1)
    assert of_flows([3, 1, 2], trimmed=(1,)) == Order(2, 1, 1)
    assert of_flows([3, 1], trimmed=(0, 1)) == Order(0, 0, 0)


@examples(100)
@given(st.lists(st.lists(st.integers(-1, 12), max_size=14), min_size=1, max_size=4))
def test_equals_the_twin(times: list[list[int]]) -> None:
    assert of_flows(*times) == twin(*times)


@pytest.mark.parametrize("name", ["switch-random", "host-spray", "jsq", "ecmp"])
def test_equals_the_analyzer(name: str) -> None:
    model = Model(pfc=None)
    load = collective("permutation", CLOS, model, 1 << 18, 1)
    result = run_packets(load, CLOS, parse_packet_strategy(name), model, 1, keep_arrivals=True)
    flows = received_flows(load, result, CLOS)
    extents = [flow.reordering.max_extent or 0 for flow in flows if flow.reordering is not None]
    assert reordering(load, result) == Order(
        sum(flow.packets for flow in flows),
        sum(flow.reordered_packets or 0 for flow in flows),
        max(extents, default=0),
    )
