"""Loads of layers and links in a run of the packet engine, in total and over time."""

from __future__ import annotations

import numpy as np

from ...analyzer.measures.spraying import fim
from ...kernels.kernel import Floats, Ints
from ..fabrics.fabric import Fabric
from ..flows.loads import fullest_over_fair
from ..results.replay import LayerLoad, LayerOverTime
from .model.model import PS, EngineResult, Workload

STRETCHES = 50
"""Intervals of loads over time within the lower bound."""
MOST_CELLS = 1 << 18
"""Maximum of numbers in the loads over time of a strategy; beyond it, pairs are joined."""
LEAST_PACKETS = 8
"""Full packets per interval: in a shorter interval every used link would seem busy."""


def stretch_ps(workload: Workload, bound_ps: int, fabric: Fabric) -> int:
    """Length of the intervals of loads: about STRETCHES per run without losses, each long enough
    for LEAST_PACKETS on most links."""
    packet = int(workload.packet_bytes.max(initial=1))
    service = packet * 8e12 / float(np.median(fabric.links.rate_bits_per_second))
    longest = max(bound_ps // STRETCHES, int(LEAST_PACKETS * service))
    return max(PS, longest // PS * PS)


def loads_over_time(result: EngineResult) -> tuple[Ints, Ints, int]:
    """(bytes of every link by interval, longest queues, length of an interval in ns), at most
    MOST_CELLS numbers each."""
    loads, queues, length = result.loads, result.queues, result.load_bin_ps
    if loads is None or queues is None:
        none = np.zeros((0, len(result.link_bytes)), np.int64)
        return none, none, 0
    while loads.size > MOST_CELLS and len(loads) > 1:
        pairs = np.arange(0, len(loads), 2)
        loads, queues = np.add.reduceat(loads, pairs), np.maximum.reduceat(queues, pairs)
        length *= 2
    return loads, queues, length // PS


def layer_load(
    name: str, members: Ints, choice: bool, fabric: Fabric, result: EngineResult, fair: Floats
) -> LayerLoad:
    """The record of one layer; fair: float64[links of the fabric], see `fair_share.fair_bytes`."""
    carried = result.link_bytes
    rates = fabric.links.rate_bits_per_second[members]
    weights = None if (rates == rates[0]).all() else rates
    return LayerLoad(
        layer=name,
        choice=choice,
        links=len(members),
        idle_links=int(np.count_nonzero(carried[members] == 0)),
        flows=None,
        data_flows=None,
        wire_bytes=int(carried[members].sum()),
        fim_flows_percent=None,
        fim_all_flows_percent=None,
        fim_flows_best_percent=None,
        fim_bytes_percent=fim(carried[members], weights),
        fim_chance_percent=None,
        max_over_mean=fullest_over_fair(carried[members], fair[members], rates),
        over_time=_over_time(result, members, fabric),
        devices=[],
    )


def _over_time(result: EngineResult, members: Ints, fabric: Fabric) -> LayerOverTime | None:
    """Means over the intervals with traffic, weighted by bytes; None if nothing was carried."""
    if result.loads is None:
        return None
    loads = result.loads[:, members]
    total = loads.sum(1)
    if not total.any():
        return None
    loads, total = loads[total > 0], total[total > 0]
    rates = fabric.links.rate_bits_per_second[members]
    share = loads / (rates / rates.sum() * total[:, None])
    stretch, link = np.unravel_index(int(loads.argmax()), loads.shape)
    peak = float(loads[stretch, link]) * 8e12 / result.load_bin_ps
    return LayerOverTime(
        window_ns=result.load_bin_ps // PS,
        windows=len(total),
        fim_bytes_percent=float(np.average(100 * abs(share - 1).mean(1), weights=total)),
        max_over_mean=float(np.average(share.max(1), weights=total)),
        peak_bits_per_second=peak,
        peak_utilisation=peak / float(rates[link]),
        peak_link=fabric.link_name(int(members[link])),
    )
