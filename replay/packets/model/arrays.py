"""A fabric as the arrays of the drivers, and its times without queues.

Times are those from host to host, store and forward, and the round trip of each flow.
"""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import (
    Array,
    Bool,
    Bools,
    Bytes,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    allocating,
    inlined,
    subkernel,
)
from ...fabrics.fabric import Fabric
from .model import PS

NO_ROUTE, ATTACHED = -1, -2
"""Values of `FabricArrays.route` beside groups."""
WHOLE = 1 << 20
"""More than any packet: store and forward."""


class FabricArrays(NamedTuple):
    """Arrays of S switches, H hosts, P ports, L links, E edges, G groups.

    Nodes are numbered as in the fabric: switches first, then hosts.
    """

    target: Int32s
    """int32[L]: node at the end of each link."""
    delay_ps: Ints
    ps_per_byte_q20: Ints
    """int64[L]: 8e12 / rate, scaled by 2**20 and rounded."""
    layer: Bytes
    up: Bools
    route: Int32s
    """int32[S, E]: group, NO_ROUTE, or ATTACHED at the switches of the edge."""
    group_start: Ints
    """int64[G + 1]"""
    members: Int32s
    """Links of all groups."""
    host_edge: Int32s
    """int32[H], -1 when no port is up."""
    host_switch: Int32s
    """int32[H, P], -1 for no port."""
    access: Int32s
    """int32[H, P]: link from the host, -1."""
    exits: Int32s
    """int32[H, P]: link to the host, -1."""
    return_link: Int32s
    """int32[L]: of an exit link the access link of the same port, else -1."""
    in_start: Ints
    """int64[S + H + 1]: position in `in_links` of the first link that ends at each node."""
    in_links: Int32s
    """Sorted by number, which breaks ties."""
    header_bytes: Ints
    """int64[L]: bytes of a packet after which the node at the end of the link forwards it."""

    @property
    def switches(self) -> int:
        """S."""
        return len(self.route)

    @property
    def hosts(self) -> int:
        """H."""
        return len(self.host_edge)


def fabric_arrays(fabric: Fabric) -> FabricArrays:
    """The arrays of a fabric in its present state. UsageError for rates below 1 Mb/s."""
    links, attachments, forwarding = fabric.links, fabric.attachments, fabric.forwarding
    slowest = int(links.rate_bits_per_second.min())
    if slowest < 1_000_000:
        raise UsageError(f"{fabric.name}: a link of {slowest} b/s is too slow to replay packets")
    scaled = np.rint(8e12 * (1 << 20) / links.rate_bits_per_second).astype(np.int64)
    route = forwarding.of_family(4).copy()
    for port in range(fabric.ports):
        at, edge = attachments.switch[:, port], attachments.edge
        known = (at >= 0) & (edge >= 0)
        route[at[known], edge[known]] = ATTACHED
    return_link = np.full(len(links.source), -1, np.int32)
    there = attachments.exit_link >= 0
    return_link[attachments.exit_link[there]] = attachments.access_link[there]
    order = np.argsort(links.target, kind="stable").astype(np.int32)
    ends = np.bincount(links.target, minlength=fabric.switches + fabric.hosts)
    return FabricArrays(
        target=links.target,
        delay_ps=links.delay_ns * PS,
        ps_per_byte_q20=scaled,
        layer=links.layer,
        up=links.up,
        route=route,
        group_start=forwarding.group_start,
        members=forwarding.group_links,
        host_edge=attachments.edge,
        host_switch=attachments.switch,
        access=attachments.access_link,
        exits=attachments.exit_link,
        return_link=return_link,
        in_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(ends)]),
        in_links=order,
        header_bytes=np.full(len(links.source), WHOLE, np.int64),
    )


def with_cut_through(
    arrays: FabricArrays, source: Int32s, header: int, rates: tuple[Ints, Ints] | None = None
) -> FabricArrays:
    """Switches forward a packet after its first `header` bytes, at least 64, where no outgoing link
    is faster than the incoming link: a faster link would run out of bytes.

    source: int32[L]. rates: ps per byte of each link, scaled by 2**20, least and most during the
    run.
    """
    fastest, slowest = rates or (arrays.ps_per_byte_q20, arrays.ps_per_byte_q20)
    leaving = np.full(arrays.switches + arrays.hosts, np.iinfo(np.int64).max)
    np.minimum.at(leaving, source, fastest)
    passes = (arrays.target < arrays.switches) & (slowest <= leaving[arrays.target])
    return arrays._replace(header_bytes=np.where(passes, max(64, header), WHOLE))


def ports_in_turn(arrays: FabricArrays, src: Array, dst: Array) -> Int32s:
    """int32[n]: sending port of each flow; the flows of a host use its usable ports in turn."""
    ports = np.full(len(src), -1, np.int32)
    if arrays.access.shape[1] == 1:
        ports[:] = np.where(arrays.access[src, 0] >= 0, 0, -1)
        return ports
    ends = np.stack([src, dst]).astype(np.int32)
    edges, switches, turn = arrays.host_edge, arrays.host_switch, np.zeros(arrays.hosts, np.int64)
    _take_turns(ends, edges, switches, arrays.route, turn, ports)
    return ports


@allocating
def _take_turns(
    ends: Int32s,
    host_edge: Int32s,
    host_switch: Int32s,
    route: Int32s,
    turn: Ints,
    ports: Int32s,
) -> None:
    """ports[n] of flow n from host ends[0, n] to host ends[1, n]; turn: flows of each host so far,
    those without a usable port left out."""
    usable = np.zeros(host_switch.shape[1], np.int32)
    for row in range(len(ports)):
        source, edge = ends[0, row], host_edge[ends[1, row]]
        ports_usable = 0
        for port in range(host_switch.shape[1]):
            switch = host_switch[source, port]
            if switch >= 0 and edge >= 0 and route[switch, edge] != NO_ROUTE:
                usable[ports_usable] = port
                ports_usable += 1
        if ports_usable:
            ports[row] = usable[turn[source] % ports_usable]
            turn[source] += 1


_DEEPEST = 64
"""Maximum of links of a path: routes of a broken fabric may form a loop."""
_UNKNOWN = -2
"""For the first switch: the times of this edge are not computed for this size."""


class Ways:
    """Times of packets over the equal-cost paths of a fabric; every size is computed once per
    destination's edge."""

    def __init__(self, arrays: FabricArrays) -> None:
        self._arrays = arrays

    def fastest(self, src: Array, dst: Array, size: Array) -> Ints:
        """int64[n]: ps from the start of a packet of `size` bytes at host `src` until it is at host
        `dst`, by the fastest path; -1 without a path."""
        return self._times(src, dst, size, False)

    def slowest(self, src: Array, dst: Array, size: Array) -> Ints:
        """The same by the slowest of the equal-cost paths."""
        return self._times(src, dst, size, True)

    def _times(self, src: Array, dst: Array, size: Array, longest: bool) -> Ints:
        arrays = self._arrays
        times = np.full(len(src), -1, np.int64)
        alike = bool((size == size[:1]).all())
        order = np.arange(len(size)) if alike else np.argsort(size, kind="stable")
        ends = np.stack([src, dst]).astype(np.int32)
        inner = np.empty(arrays.route.shape[::-1], np.int64)
        cost = np.empty(len(arrays.target), np.int64)
        sizes = np.ascontiguousarray(size, np.int64)
        _fill(arrays, ends, sizes, order, longest, cost, inner, times)
        return times


@subkernel
def _fill(
    arrays: FabricArrays,
    ends: Int32s,
    size: Ints,
    order: Ints,
    longest: Bool,
    cost: Ints,
    inner: Ints,
    times: Ints,
) -> None:
    """Set times[n] of `Ways`; ends: int32[2, n], hosts; order: by size. Scratch space: cost,
    int64[L], time of each link; inner, int64[E, S], time from each switch to each edge."""
    known = np.int64(-1)
    for row in order:
        if known != size[row]:
            known = size[row]
            for link in range(len(cost)):
                passed = min(known, arrays.header_bytes[link])
                service = (passed * arrays.ps_per_byte_q20[link] + (1 << 19)) >> 20
                cost[link] = service + arrays.delay_ps[link]
            for edge in range(len(inner)):
                inner[edge, 0] = _UNKNOWN
        src, dst = ends[0, row], ends[1, row]
        edge = arrays.host_edge[dst]
        if edge < 0:
            continue
        if inner[edge, 0] == _UNKNOWN:
            _times_towards(arrays, edge, cost, longest, inner[edge])
        total: Int = np.int64(-1)
        last: Int = np.int64(-1)
        for port in range(arrays.access.shape[1]):
            switch, access = arrays.host_switch[src, port], arrays.access[src, port]
            if switch >= 0 and access >= 0 and inner[edge, switch] >= 0:
                total = _better(total, cost[access] + inner[edge, switch], longest)
            way_out = arrays.exits[dst, port]
            if way_out >= 0:
                last = _better(last, cost[way_out], longest)
        if total >= 0:
            times[row] = total + last


@inlined
def _better(best: Int, time: Int, longest: Bool) -> Int:
    """The longer or the shorter time; best: -1 for none so far."""
    if best < 0 or (time > best if longest else time < best):
        return time
    return best


@subkernel
def _times_towards(arrays: FabricArrays, edge: Int, cost: Ints, longest: Bool, times: Ints) -> None:
    """times: int64[S], from each switch to a switch of the edge, by the routes to it; -1: no path.

    Relaxed until nothing changes: once per link of the longest path.
    """
    route, target, switches = arrays.route, arrays.target, len(arrays.route)
    for switch in range(switches):
        times[switch] = 0 if route[switch, edge] == ATTACHED else -1
    for _ in range(_DEEPEST):
        changed = False
        for switch in range(switches):
            group = route[switch, edge]
            if group < 0:
                continue
            best = times[switch]
            for i in range(arrays.group_start[group], arrays.group_start[group + 1]):
                link = arrays.members[i]
                if target[link] >= switches or times[target[link]] < 0:
                    continue
                best = _better(best, cost[link] + times[target[link]], longest)
            if best != times[switch]:
                times[switch] = best
                changed = True
        if not changed:
            break


def by_any_link(arrays: FabricArrays, source: Int32s) -> FabricArrays:
    """Arrays in which every switch may use every link to a switch, for times that no routing beats.

    source: int32[L], node at the start of each link.
    """
    switches = arrays.switches
    inner = np.flatnonzero((source < switches) & (arrays.target < switches))
    inner = inner[np.argsort(source[inner], kind="stable")]
    starts = np.searchsorted(source[inner], np.arange(switches + 1))
    every = np.repeat(np.arange(switches, dtype=np.int32)[:, None], arrays.route.shape[1], axis=1)
    return arrays._replace(
        route=np.where(arrays.route == ATTACHED, np.int32(ATTACHED), every),
        group_start=starts.astype(np.int64),
        members=inner.astype(np.int32),
    )


class RoundTrips(NamedTuple):
    """What hosts know of the network before the first packet; F flows."""

    ps: Ints
    """int64[F]: from the start of a full packet to its ACK; at least 1."""
    bits_per_second: Ints
    """int64[F]: rate of all ports of the sender together."""
    hops: Ints
    """int64[F]: links of the shortest path."""


def round_trips(
    src: Int32s, dst: Int32s, arrays: FabricArrays, packet_bytes: int, ack_bytes: int = 64
) -> RoundTrips:
    """Round trips by the slowest of the equal-cost paths, so that propagation never looks like a
    queue; 1 ps for pairs without a path."""
    pairs, of_pair = np.unique(np.stack([src, dst]), axis=1, return_inverse=True)
    there, back = pairs
    paths = Ways(arrays)
    size = np.full(len(there), packet_bytes), np.full(len(there), ack_bytes)
    forth, answer = paths.slowest(there, back, size[0]), paths.slowest(back, there, size[1])
    both_ways = np.where((forth >= 0) & (answer >= 0), forth + answer, 1)
    each = arrays._replace(
        ps_per_byte_q20=np.zeros_like(arrays.ps_per_byte_q20),
        delay_ps=np.ones_like(arrays.delay_ps),
    )
    hops = np.maximum(1, Ways(each).fastest(there, back, size[0]))
    access = arrays.access[there]
    per_byte = np.where(access >= 0, arrays.ps_per_byte_q20[access], np.iinfo(np.int64).max)
    rate = np.rint((8e12 * (1 << 20) / per_byte).sum(1)).astype(np.int64)
    of_pair = of_pair.reshape(-1)
    return RoundTrips(both_ways[of_pair], rate[of_pair], hops[of_pair])


def bdp_packets(trips: RoundTrips, packet_bytes: int) -> Ints:
    """int64[F]: packets in flight that fill the round trip, at least 1."""
    in_flight = trips.ps * (trips.bits_per_second / 8e12 / packet_bytes)
    return np.maximum(1, in_flight.astype(np.int64))
