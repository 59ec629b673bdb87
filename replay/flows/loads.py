"""Link loads of a placement, and how evenly the links of a layer are loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...analyzer.measures.spraying import best_fim, fim
from ...kernels.kernel import Array, Bools, Floats, Int32s, Ints, kernel
from ...kernels.named import NamedTuple
from ..fabrics.fabric import Fabric
from ..traffic.traffic import Traffic, Windows


class Placement(NamedTuple):
    """The path of every unit."""

    links: Int32s
    """int32[units, hops]: the links in order, -1 after the last link."""
    dropped: Bools
    """bool[units]: no path was found; links before the end are not counted."""


@dataclass(frozen=True)
class LinkLoads:
    """Units and bytes per one-way link of a fabric."""

    flows: Ints
    """int64[links]: units; each entropy value of a sprayed flow counts."""
    wire_bytes: Ints
    counted: Ints
    """int64[links]: units that a FIM of flows counts (`Traffic.counted`)."""


def link_loads(placement: Placement, traffic: Traffic, links: int) -> LinkLoads:
    """Sum up the load of every link."""
    loads = np.zeros((3, links), np.int64)
    _add_loads(placement.links, placement.dropped, traffic.wire_bytes, traffic.counted(), loads)
    return LinkLoads(*loads)


@kernel
def _add_loads(links: Int32s, dropped: Bools, unit_bytes: Ints, counted: Ints, loads: Ints) -> None:
    for unit in range(links.shape[0]):
        if dropped[unit]:
            continue
        for hop in range(links.shape[1]):
            link = links[unit, hop]
            if 0 <= link < loads.shape[1]:
                loads[0, link] += 1
                loads[1, link] += unit_bytes[unit]
                loads[2, link] += counted[unit]


class Layers(NamedTuple):
    """Links by layer and direction that a unit can reach."""

    names: tuple[str, ...]
    links: tuple[Ints, ...]
    choice: tuple[bool, ...]
    """Whether hashing chooses: the layer is between switches, and some of them have a choice."""


def layers_of(fabric: Fabric, reachable: Bools) -> Layers:
    """The layers with reachable links (bool[links]), in the order of the fabric."""
    links, forwarding = fabric.links, fabric.forwarding
    sizes = np.diff(forwarding.group_start)
    chosen = bool((reachable[forwarding.group_links] & np.repeat(sizes > 1, sizes)).any())
    between = (links.source < fabric.switches) & (links.target < fabric.switches)
    found = []
    for number, name in enumerate(fabric.layers):
        members = np.flatnonzero((links.layer == number) & reachable)
        if len(members):
            found.append((name, members, chosen and bool(between[members].all())))
    return Layers(
        tuple(name for name, _, _ in found),
        tuple(members for _, members, _ in found),
        tuple(choice for _, _, choice in found),
    )


class Evenness(NamedTuple):
    """How evenly the links of a layer are loaded; None without load."""

    links: int
    flows: int
    data_flows: int
    wire_bytes: int
    idle_links: int
    fim_flows_percent: float | None
    fim_all_flows_percent: float | None
    """Of all flows; None if `fim_flows_percent` counts all."""
    fim_flows_best_percent: float | None
    fim_bytes_percent: float | None
    max_over_mean: float | None
    """Load of the busiest link over the largest fair share."""


def evenness(loads: LinkLoads, links: Ints, rates: Array, fair: Floats, reach: Bools) -> Evenness:
    """The measures of `links`; fair shares are proportional to link rates.

    rates, fair: of all links; fair is bytes as of `fair_share.fair_bytes`. reach: bool of all
    links, those that a unit with data can reach; a FIM of flows counts these units and links, and
    all of them if none has data.
    """
    rates, fair = rates[links], fair[links]
    weights = None if (rates == rates[0]).all() else rates
    flows, wire_bytes, counted = loads.flows[links], loads.wire_bytes[links], loads.counted[links]
    only_acks = not counted.any()
    number = flows if only_acks else counted
    inside = np.ones(len(links), np.bool_) if only_acks else reach[links] | (counted > 0)
    of_data = None if weights is None else rates[inside]
    every = int(flows.sum())
    number = number[inside]
    return Evenness(
        len(links),
        every,
        int(counted.sum()),
        int(wire_bytes.sum()),
        int(np.count_nonzero(flows == 0)),
        fim(number, of_data),
        fim(flows, weights) if int(number.sum()) < every else None,
        best_fim(int(number.sum()), len(number), of_data),
        fim(wire_bytes, weights),
        fullest_over_fair(wire_bytes, fair, rates),
    )


def fullest_over_fair(wire_bytes: Array, fair: Floats, rates: Array) -> float | None:
    """Transmission time of the busiest link relative to fair shares; None without load.

    Not the largest ratio of a link to its own share: a few ACKs that share a link cause no delay.
    """
    if not wire_bytes.any():
        return None
    return float((wire_bytes / rates).max() / (fair / rates).max())


class OverTime(NamedTuple):
    """Means over windows weighted by their bytes, and the busiest window of any link."""

    windows: int
    fim_bytes: float
    max_over_mean: float
    peak_bytes: int
    peak_link: int
    """Index into the links asked for."""


def over_time(placement: Placement, windows: Windows, links: Ints, rates: Ints) -> OverTime | None:
    """Loads of `links` window by window; None if they carried nothing."""
    order = np.argsort(windows.window, kind="stable")
    number = np.full(int(max(placement.links.max(initial=-1), links.max(initial=-1))) + 1, -1)
    number[links] = np.arange(len(links))
    fair = rates / rates.sum()
    sums = np.zeros(4)
    peak = _walk_windows(
        placement.links,
        placement.dropped,
        windows.unit[order],
        windows.window[order],
        windows.wire_bytes[order],
        number,
        fair,
        sums,
    )
    if not sums[0]:
        return None
    return OverTime(
        int(sums[3]),
        float(100 * sums[1] / sums[0]),
        float(sums[2] / sums[0]),
        int(peak[0]),
        int(peak[1]),
    )


@kernel
def _walk_windows(
    links: Int32s,
    dropped: Bools,
    unit: Int32s,
    window: Int32s,
    wire_bytes: Ints,
    number: Ints,
    fair: Floats,
    sums: Floats,
) -> tuple[np.int64, np.int64]:
    """sums: bytes, bytes x relative deviation, bytes x max/mean, windows. Returns the peak."""
    loads = np.zeros(len(fair), np.int64)
    peak_bytes, peak_link = np.int64(0), np.int64(-1)
    begin = 0
    while begin < len(window):
        end = begin
        loads[:] = 0
        total = np.int64(0)
        while end < len(window) and window[end] == window[begin]:
            u = np.int64(unit[end])
            if 0 <= u < links.shape[0] and not dropped[u]:
                for hop in range(links.shape[1]):
                    link = np.int64(links[u, hop])
                    if 0 <= link < len(number) and number[link] >= 0:
                        loads[number[link]] += wire_bytes[end]
                        total += wire_bytes[end]
            end += 1
        if total:
            deviation, largest = 0.0, 0.0
            for i in range(len(fair)):
                share = loads[i] / (fair[i] * total)
                deviation += abs(share - 1)
                largest = max(largest, share)
                if loads[i] > peak_bytes:
                    peak_bytes, peak_link = loads[i], np.int64(i)
            sums[0] += total
            sums[1] += total * deviation / len(fair)
            sums[2] += total * largest
            sums[3] += 1
        begin = end
    return peak_bytes, peak_link


def most_at_once(placement: Placement, windows: Windows, link: int) -> int:
    """The maximum number of units that use a link in the same window."""
    here = (placement.links == link).any(1) & ~placement.dropped
    rows = here[windows.unit] & (windows.wire_bytes > 0)
    return int(np.unique(windows.window[rows], return_counts=True)[1].max(initial=0))
