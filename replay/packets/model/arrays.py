"""A fabric as the arrays of the drivers."""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Array, Bools, Bytes, Int32s, Ints, kernel
from ....kernels.named import NamedTuple
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


@kernel
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
        found = 0
        for port in range(host_switch.shape[1]):
            switch = host_switch[source, port]
            if switch >= 0 and edge >= 0 and route[switch, edge] != NO_ROUTE:
                usable[found] = port
                found += 1
        if found:
            ports[row] = usable[turn[source] % found]
            turn[source] += 1
