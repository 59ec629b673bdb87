"""Description and validation of a fabric: tiers, links, reachability, group sizes, bisection.

All counts are per edge (hosts on the same switches), so a fabric of 100,000 hosts needs
no table of hosts times hosts.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ....analyzer.results.base import Record, about
from ....kernels.kernel import Array, Int32s, Ints
from ...fabrics.fabric import Fabric, edge_switches, tier_name
from .blast_radius import BlastRadius, blast_radii
from .path_counts import HostPaths, paths_between
from .table_sizes import TableSize, table_sizes

SCHEMA_VERSION = "1.1"
_CELLS_AT_ONCE = 1 << 24


class Tier(Record, frozen=True, kw_only=True):
    """The switches of a tier."""

    name: str
    switches: int
    downlink_bits_per_second: Annotated[int, about("of one switch, the largest")]
    uplink_bits_per_second: Annotated[int, about("of one switch, the largest")]
    oversubscription_min: Annotated[
        float | None, about("downlink over uplink rate of the best switch; null: no uplink")
    ]
    oversubscription_max: float | None


class Layer(Record, frozen=True, kw_only=True):
    """The links of one layer and direction."""

    name: str
    links: int
    down: int
    rate_min_bits_per_second: int
    rate_max_bits_per_second: int
    delay_min_ns: int
    delay_max_ns: int
    capacity_bits_per_second: Annotated[int, about("of all links that are up")]
    group_sizes: Annotated[
        dict[int, int],
        about("sizes of equal-cost groups: how many (switch, destination) have each"),
    ]


class FabricReport(Record, frozen=True, kw_only=True):
    """The result of `check_fabric`."""

    schema_version: str
    name: str
    hosts: int
    host_ports: Annotated[int, about("most ports of a host, one per plane")]
    switches: int
    edges: Annotated[int, about("sets of switches that hosts are attached to")]
    tiers: list[Tier]
    layers: list[Layer]
    shortest_paths: Annotated[bool, about("False: explicit routes")]
    longest_path_links: Annotated[int | None, about("null when no pair is connected")]
    unreachable_pairs: Annotated[int, about("ordered pairs of hosts")]
    looping_pairs: Annotated[int, about("pairs of switch and destination whose route is a loop")]
    dead_ends: Annotated[int, about("pairs of switch and destination on a path, without a route")]
    bisection_bits_per_second: Annotated[
        int | None, about("from the first half of the edges to the second; null for one edge")
    ]
    bisection_ratio: Annotated[
        float | None, about("share of the total rate of the hosts of the smaller half")
    ]
    problems: list[str]
    tables: list[TableSize]
    paths: Annotated[HostPaths | None, about("of the chosen pair of hosts")]
    blast_radii: Annotated[list[BlastRadius], about("of the chosen failures")]

    @property
    def is_sound(self) -> bool:
        """Whether every host reaches every other."""
        return not self.problems


def check_fabric(
    fabric: Fabric, pair: tuple[int, int] | None = None, failures: str | None = None
) -> FabricReport:
    """Describe and validate a fabric.

    pair: hosts to count the paths between. failures: what `blast_radii` takes. UsageError for
    names that do not exist.
    """
    paths = paths_between(fabric, *pair) if pair is not None else None
    radii = blast_radii(fabric, failures) if failures is not None else []
    unreachable, example = _unreachable(fabric)
    loops, dead_ends, longest, places = _walk(fabric)
    bisection, ratio = _bisection(fabric)
    problems = []
    if unreachable:
        total = fabric.hosts * (fabric.hosts - 1)
        problems.append(
            f"{unreachable:,} of {total:,} pairs of hosts cannot reach each other, "
            f"for example {example}"
        )
    problems += places
    return FabricReport(
        schema_version=SCHEMA_VERSION,
        name=fabric.name,
        hosts=fabric.hosts,
        host_ports=fabric.ports,
        switches=fabric.switches,
        edges=len(edge_switches(fabric.attachments)),
        tiers=_tiers(fabric),
        layers=[_layer(fabric, i, name) for i, name in enumerate(fabric.layers)],
        shortest_paths=fabric.routed,
        longest_path_links=longest if len(fabric.links.source) else None,
        unreachable_pairs=unreachable,
        looping_pairs=loops,
        dead_ends=dead_ends,
        bisection_bits_per_second=bisection,
        bisection_ratio=ratio,
        problems=problems,
        tables=table_sizes(fabric),
        paths=paths,
        blast_radii=radii,
    )


def _tiers(fabric: Fabric) -> list[Tier]:
    links, nodes = fabric.links, fabric.nodes
    rate = np.where(links.up, links.rate_bits_per_second, 0)
    upwards = nodes.tier[links.target] > nodes.tier[links.source]
    up, down = (
        np.bincount(links.source[way], weights=rate[way], minlength=len(nodes.names))
        for way in (upwards, ~upwards)
    )
    tiers = []
    for tier in sorted(set(nodes.tier[: fabric.switches].tolist())):
        here = np.flatnonzero(nodes.tier[: fabric.switches] == tier)
        with_uplinks = here[up[here] > 0]
        ratio = down[with_uplinks] / up[with_uplinks]
        tiers.append(
            Tier(
                name=tier_name(tier),
                switches=len(here),
                downlink_bits_per_second=int(down[here].max()),
                uplink_bits_per_second=int(up[here].max()),
                oversubscription_min=float(ratio.min()) if len(ratio) else None,
                oversubscription_max=float(ratio.max()) if len(ratio) else None,
            )
        )
    return tiers


def _layer(fabric: Fabric, layer: int, name: str) -> Layer:
    links = fabric.links
    here = links.layer == layer
    rate, delay = links.rate_bits_per_second[here], links.delay_ns[here]
    return Layer(
        name=name,
        links=int(here.sum()),
        down=int((here & ~links.up).sum()),
        rate_min_bits_per_second=int(rate.min()),
        rate_max_bits_per_second=int(rate.max()),
        delay_min_ns=int(delay.min()),
        delay_max_ns=int(delay.max()),
        capacity_bits_per_second=int(links.rate_bits_per_second[here & links.up].sum()),
        group_sizes=_group_sizes(fabric, layer),
    )


def _group_sizes(fabric: Fabric, layer: int) -> dict[int, int]:
    """Sizes of the groups whose links are in a layer, counted by (switch, edge)."""
    forwarding = fabric.forwarding
    sizes = np.diff(forwarding.group_start)
    if not len(sizes):
        return {}
    used = np.bincount(forwarding.group_of.reshape(-1) + 1, minlength=len(sizes) + 1)[1:]
    first = forwarding.group_links[
        np.minimum(forwarding.group_start[:-1], len(forwarding.group_links) - 1)
    ]
    here = (fabric.links.layer[first] == layer) & (used > 0)
    counts = np.bincount(sizes[here], weights=used[here])
    return {int(size): int(counts[size]) for size in np.flatnonzero(counts)}


def _unreachable(fabric: Fabric) -> tuple[int, str]:
    """Ordered pairs of hosts without a path, and one of them."""
    edge, edges = fabric.attachments.edge, edge_switches(fabric.attachments)
    hosts = np.bincount(edge[edge >= 0], minlength=len(edges))
    lost = int(np.count_nonzero(edge < 0))
    pairs = lost * (fabric.hosts - lost) * 2 + lost * (lost - 1)
    example = ""
    if lost and fabric.hosts > 1:
        alone = int(np.flatnonzero(edge < 0)[0])
        example = f"{fabric.host_name(alone)} has no link that is up"
    rows = max(1, _CELLS_AT_ONCE // max(1, edges.size))
    for start in range(0, len(edges), rows):
        part = edges[start : start + rows]
        reached = np.zeros((len(part), len(edges)), np.bool_)
        for port in range(edges.shape[1]):
            switch = part[:, port]
            routed = fabric.forwarding.group_of[switch] >= 0
            for other in range(edges.shape[1]):
                routed |= switch[:, None] == edges[None, :, other]
            reached |= routed & (switch >= 0)[:, None]
        a, b = np.nonzero(~reached)
        pairs += int((hosts[start + a] * hosts[b]).sum())
        if len(a) and not example:
            first, second = (int(np.flatnonzero(edge == e)[0]) for e in (start + a[0], b[0]))
            example = f"{fabric.host_name(first)} to {fabric.host_name(second)}"
    return pairs, example


def _walk(fabric: Fabric) -> tuple[int, int, int | None, list[str]]:
    """(loops, dead ends, links of the longest path, words about them).

    Shortest paths have no loops and no dead ends; explicit routes are followed
    from the switches of every edge.
    """
    edges = edge_switches(fabric.attachments)
    longest: int | None = 2 if fabric.hosts > 1 else None
    loops = dead_ends = 0
    places: list[str] = []
    whose = range(len(edges)) if not fabric.routed else _some(len(edges))
    starts = np.unique(edges[edges >= 0])
    for e in whose:
        depth = depths_to(fabric, e, starts)
        found = [depth[s] + 2 for s in starts.tolist() if depth[s] >= 0]
        longest = max([longest or 0, *found]) if found else longest
        bad = [s for s, d in depth.items() if d < 0 and not fabric.routed]
        loops += sum(depth[s] == LOOP for s in bad)
        dead_ends += sum(depth[s] == DEAD_END for s in bad)
        for s in bad:
            if len(places) < 3:
                host = fabric.host_name(int(np.flatnonzero(fabric.attachments.edge == e)[0]))
                what = "is a loop" if depth[s] == LOOP else "ends without a route"
                places.append(f"the path from {fabric.nodes.names[s]} to {host} {what}")
    return loops, dead_ends, longest, places


LOOP, DEAD_END = -1, -2
"""In place of a depth."""
_SAMPLED_EDGES = 4


def next_switches(fabric: Fabric, switch: int, edge: int) -> list[int]:
    """The next switches towards an edge; tables may also name hosts, where paths end."""
    ends = (int(fabric.links.target[link]) for link in fabric.group(switch, edge)[0])
    return [end for end in ends if end < fabric.switches]


def depths_to(fabric: Fabric, edge: int, starts: Int32s) -> dict[int, int]:
    """Links on the longest path to an edge of every switch on a path from `starts`.

    LOOP or DEAD_END if some path from the switch does not end at the edge.
    """
    here = edge_switches(fabric.attachments)[edge]
    depth = {int(s): 0 for s in here if s >= 0}
    on_path: set[int] = set()
    for start in starts.tolist():
        _deepest(fabric, start, edge, depth, on_path)
    return depth


def _some(edges: int) -> Ints:
    """A few edges including first and last, enough for the longest path if symmetric."""
    return np.unique(np.linspace(0, max(0, edges - 1), _SAMPLED_EDGES).astype(np.int64))[:edges]


def _deepest(
    fabric: Fabric, start: int, edge: int, depth: dict[int, int], on_path: set[int]
) -> None:
    """Fill `depth` of all switches on the paths from a switch to an edge."""
    stack = [start] if start not in depth else []
    while stack:
        switch = stack[-1]
        nexts = next_switches(fabric, switch, edge)
        waiting = [n for n in nexts if n not in depth]
        if switch not in on_path:
            on_path.add(switch)
            if not nexts:
                depth[switch] = DEAD_END
        if any(n in on_path for n in waiting):
            depth[switch] = LOOP
        if switch in depth or not waiting:
            if switch not in depth:
                below = [depth[n] for n in nexts]
                depth[switch] = min(below) if min(below) < 0 else 1 + max(below)
            on_path.discard(switch)
            stack.pop()
        else:
            stack.append(waiting[0])


def _bisection(fabric: Fabric) -> tuple[int | None, float | None]:
    """Largest flow from the hosts of the first half of the edges to those of the second.

    Full bisection bandwidth is the minimum over all halves; in a symmetric fabric all
    halves along edges are equal.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    links, switches = fabric.links, fabric.switches
    attachments = fabric.attachments
    edges = edge_switches(attachments)
    hosts = np.bincount(attachments.edge[attachments.edge >= 0], minlength=len(edges))
    first = np.cumsum(hosts) - hosts / 2 < hosts.sum() / 2
    if first.all() or not first.any():
        return None, None
    between = np.flatnonzero((links.source < switches) & (links.target < switches) & links.up)
    unit = int(np.gcd.reduce(links.rate_bits_per_second))
    capacity = links.rate_bits_per_second // unit
    rows: list[Array] = [links.source[between]]
    columns: list[Array] = [links.target[between]]
    values: list[Array] = [capacity[between]]
    totals = []
    for is_first, table in ((True, attachments.access_link), (False, attachments.exit_link)):
        known = (table >= 0) & (first[attachments.edge] == is_first)[:, None]
        sums = np.bincount(
            attachments.switch[known], weights=capacity[table[known]], minlength=switches
        ).astype(np.int64)
        here = np.flatnonzero(sums)
        node = np.full(len(here), switches + (not is_first))
        rows.append(node if is_first else here)
        columns.append(here if is_first else node)
        values.append(sums[here])
        totals.append(int(sums.sum()))
    total = np.concatenate(values)
    if total.sum() >= 1 << 31:  # the solver counts in 32 bits: coarser units, rounded down
        coarser = int(total.sum() // (1 << 31)) + 1
        total, unit = total // coarser, unit * coarser
    size = switches + 2
    place = np.concatenate(rows).astype(np.int64) * size + np.concatenate(columns)
    places, inverse = np.unique(place, return_inverse=True)  # parallel links add up
    summed = np.bincount(inverse.reshape(-1), weights=total).astype(np.int32)
    graph = csr_array((summed, (places // size, places % size)), shape=(size, size))
    flow = int(maximum_flow(graph, switches, switches + 1).flow_value) * unit
    return flow, flow / (min(totals) * int(np.gcd.reduce(links.rate_bits_per_second)))
