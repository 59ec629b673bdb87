"""Loads of links, with the links where flows enter the fabric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...analyzer.measures.spraying import best_fim, fim
from ...kernels.kernel import (
    Array,
    Bools,
    Floats,
    Int32s,
    Ints,
    NamedTuple,
    UInt32s,
    UInt64s,
    allocating,
    kernel,
)
from ..fabrics.fabric import Fabric
from ..hashing.keys import parse_field_set
from ..hashing.models import bind
from ..hashing.settings import HashSettings
from ..traffic.traffic import Traffic, Windows, ordinals

# Where units enter a fabric: the port of their host, and the switch behind it.

MOST_HOPS = 64
"""Maximum number of switches on a path; a longer path is a loop in the tables of routers."""


class Start(NamedTuple):
    """Where units enter the fabric."""

    access: Int32s
    """int32[n]: first link, -1 if the destination cannot be reached."""
    switch: Int32s
    """int32[n]: the switch after it, -1 likewise."""
    edge: Int32s
    """int32[n]: edge of the destination host, -1 likewise."""


def enter(traffic: Traffic, fabric: Fabric) -> Start:
    """First links: a host with several usable ports uses them in turn, unit by unit."""
    n = len(traffic)
    access, switch = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    edge = np.full(n, -1, np.int32)
    known = np.flatnonzero((traffic.src_host >= 0) & (traffic.dst_host >= 0))
    if len(known) == 0:
        return Start(access, switch, edge)
    source, destination = traffic.src_host[known], traffic.dst_host[known]
    ipv6 = traffic.keys.ipv6[known]
    usable = fabric.usable_ports(source, destination, ipv6)
    count = usable.sum(1)
    reached = count > 0
    port = np.zeros(len(known), np.int64)
    if usable.shape[1] > 1:
        # The (turn mod count)-th usable port: the first column after that many usable ports.
        wanted = np.where(reached, ordinals(source) % np.maximum(count, 1), 0)
        port = ((usable.cumsum(1) > wanted[:, None]) & usable).argmax(1)
    chosen = known[reached]
    access[chosen] = fabric.attachments.access_link[source[reached], port[reached]]
    switch[chosen] = fabric.attachments.switch[source[reached], port[reached]]
    edge[chosen] = fabric.edge_of(destination, ipv6)[reached]
    return Start(access, switch, edge)


# Hashing of the ingress port: every unit has one key per possible ingress port.


def hashes_ingress(settings: HashSettings) -> bool:
    """Whether the field set contains the ingress port; for Linux the policy sets the fields."""
    return settings.model != "linux" and "ingress" in parse_field_set(settings.field_set)


def ingress_ports(fabric: Fabric) -> Int32s:
    """int32[links]: the port at which each link arrives, from 1 in the order of the links."""
    order = np.argsort(fabric.links.target, kind="stable")
    ordered = fabric.links.target[order]
    ports = np.empty(len(order), np.int32)
    ports[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered) + 1
    return ports


class IngressVariants:
    """Hash values of every unit for its ingress port.

    All ports are hashed and the value of the ingress port is selected, so the cost grows
    with the number of ports of a switch.
    """

    def __init__(self, fabric: Fabric, traffic: Traffic, settings: HashSettings) -> None:
        self._port = ingress_ports(fabric)
        self._ports = int(self._port.max(initial=1))
        units = len(traffic)
        rows = np.tile(np.arange(units), self._ports)
        ports = np.repeat(np.arange(1, self._ports + 1), units)
        self._units = units
        self.bound = bind(traffic.keys.take(rows), settings, ports)

    def values(self, seeds: UInt64s, which: Int32s, came_by: Int32s) -> UInt32s:
        """uint32[rows, units]: unit i under seeds[which[r, i]], arrived over link came_by[r, i]."""
        rows = len(which)
        every = np.empty((rows, self._ports * self._units), np.uint32)
        self.bound.fill_at(seeds, np.tile(which, (1, self._ports)), every)
        port = np.where(came_by >= 0, self._port[came_by], 1) - 1
        by_port = every.reshape(rows, self._ports, self._units)
        picked: UInt32s = np.take_along_axis(by_port, port[:, None, :], 1)[:, 0]
        return picked


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
    layers = []
    for number, name in enumerate(fabric.layers):
        members = np.flatnonzero((links.layer == number) & reachable)
        if len(members):
            layers.append((name, members, chosen and bool(between[members].all())))
    return Layers(
        tuple(name for name, _, _ in layers),
        tuple(members for _, members, _ in layers),
        tuple(choice for _, _, choice in layers),
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

    rates, fair: of all links; fair is bytes as of `shares.fair_bytes`. reach: bool of all
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
        busiest_over_fair(wire_bytes, fair, rates),
    )


def busiest_over_fair(wire_bytes: Array, fair: Floats, rates: Array) -> float | None:
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


@allocating
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
    on_link = (placement.links == link).any(1) & ~placement.dropped
    rows = on_link[windows.unit] & (windows.wire_bytes > 0)
    return int(np.unique(windows.window[rows], return_counts=True)[1].max(initial=0))
