"""Checks of a fabric: paths, failures, sizes of tables."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.results.base import Record, about
from ...kernels.kernel import Array, Bools, Int32s, Ints, NamedTuple
from ..fabrics.fabric import Fabric, edge_switches, tier_name
from .loads import MOST_HOPS

# Number of equal-cost paths from one host to another, without listing them.


class PortPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The paths that start at one port of a host."""

    switch: Annotated[str, about("the switch at the port")]
    paths: int
    links: Annotated[int, about("links of the longest path, including links of hosts")]


class HostPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The paths from one host to another."""

    source: str
    destination: str
    paths: int
    longest_links: Annotated[int | None, about("null without a path")]
    ports: Annotated[list[PortPaths], about("ports that are up; paths may be 0")]


def paths_between(
    fabric: Fabric, source: int, destination: int, lost: Bools | None = None
) -> HostPaths:
    """Paths over the groups of the fabric, port by port.

    lost: bool[links], failed links that are still in the groups: the remaining paths
    are the static paths (MRC), or the paths that hashing uses before routing converges.
    UsageError for a path from a host to itself and for routing loops.
    """
    if source == destination:
        raise UsageError(f"paths need two different hosts, not twice {fabric.host_name(source)}")
    works = fabric.links.up if lost is None else fabric.links.up & ~lost
    exits = {
        int(switch): int(link)
        for switch, link in zip(
            fabric.attachments.switch[destination],
            fabric.attachments.exit_link[destination],
            strict=True,
        )
        if switch >= 0
    }
    edge = int(fabric.attachments.edge[destination])
    known = {switch: (int(works[link]), 1) for switch, link in exits.items()}

    def onwards(switch: int, hops: int) -> tuple[int, int]:
        """(paths, links of the longest) from a switch to the host."""
        if switch in known:
            return known[switch]
        if hops > MOST_HOPS:
            raise UsageError(f"the routes of {fabric.name} form a loop")
        paths = longest = 0
        for link in fabric.group(switch, edge)[0].tolist():
            more, length = onwards(int(fabric.links.target[link]), hops + 1)
            if more and works[link]:
                paths, longest = paths + more, max(longest, length + 1)
        known[switch] = paths, longest
        return known[switch]

    ports = []
    for switch, access in zip(
        fabric.attachments.switch[source].tolist(),
        fabric.attachments.access_link[source].tolist(),
        strict=True,
    ):
        if switch < 0:
            continue
        paths, longest = onwards(switch, 0) if edge >= 0 and works[access] else (0, 0)
        ports.append(
            PortPaths(
                switch=fabric.nodes.names[switch], paths=paths, links=longest + 1 if paths else 0
            )
        )
    return HostPaths(
        source=fabric.host_name(source),
        destination=fabric.host_name(destination),
        paths=sum(port.paths for port in ports),
        longest_links=max((port.links for port in ports if port.paths), default=None),
        ports=ports,
    )


def named_pair(fabric: Fabric, text: str) -> tuple[int, int]:
    """`host1,host300` as numbers of hosts; UsageError names the mistake."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise UsageError(f"--paths takes two hosts, such as host1,host2, not {text!r}")
    hosts = fabric.nodes.names[fabric.switches :]
    numbers = []
    for name in names:
        if name not in hosts:
            raise UsageError(
                f"there is no host {name!r} in {fabric.name}; hosts are {hosts[0]} to {hosts[-1]}"
            )
        numbers.append(hosts.index(name))
    return numbers[0], numbers[1]


# Effect of a failure of a link, a switch or a plane of a fabric, counted, not simulated.

EACH = "each"
"""Value for one element of every kind, in place of names."""


class BlastRadius(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences of one failure."""

    element: str
    kind: Annotated[str, about("`leaf-spine link`, `spine`, `plane`, ...")]
    links: Annotated[int, about("one-way links that fail")]
    hosts_below: Annotated[int, about("hosts whose packets to other leaves can use a failed link")]
    hosts_cut_off: Annotated[int, about("hosts without a remaining port")]
    host_capacity_percent: Annotated[float, about("lost port capacity of the host that loses most")]
    uplink_capacity_percent: Annotated[
        float, about("lost uplink capacity of the remaining switch that loses most")
    ]
    source: Annotated[str, about("a host below the failure")]
    destination: Annotated[str, about("a host far from it")]
    paths_before: Annotated[int, about("equal-cost paths from one to the other")]
    paths_after: Annotated[int, about("equal-cost paths that avoid the failure")]


class _Element(NamedTuple):
    name: str
    kind: str
    links: Ints


def blast_radii(fabric: Fabric, elements: str) -> list[BlastRadius]:
    """Effects of named failures (`leaf1-spine1,spine2,plane1`, as for `down=`), or of `each`.

    Each fails alone. UsageError for an unknown name, and for a fabric with one host.
    """
    if fabric.hosts < 2:
        raise UsageError(f"{fabric.name} has only one host: there are no paths")
    names = [name.strip() for name in elements.split(",") if name.strip()]
    if not names:
        raise UsageError("--blast-radius takes each, or names such as leaf1-spine1,spine2")
    chosen = _of_every_kind(fabric) if names == [EACH] else [_element(fabric, n) for n in names]
    return [_radius(fabric, element) for element in chosen]


def _of_every_kind(fabric: Fabric) -> list[_Element]:
    links, tier = fabric.links, fabric.nodes.tier
    upwards = links.up & (tier[links.target] > tier[links.source])
    elements = []
    for layer in range(len(fabric.layers)):
        in_layer = np.flatnonzero(upwards & (links.layer == layer))
        if len(in_layer):
            name = fabric.link_name(int(in_layer[0])).replace(">", "-", 1)
            parallel = len(fabric.find_links(name)) > 2
            elements.append(_element(fabric, f"{name}#1" if parallel else name))
    elements.sort(key=lambda element: int(tier[links.source[element.links]].min()))
    for level in sorted(set(tier[: fabric.switches].tolist()), reverse=True):
        first = int(np.flatnonzero(tier[: fabric.switches] == level)[0])
        elements.append(_element(fabric, fabric.nodes.names[first]))
    if len(set(fabric.nodes.plane[: fabric.switches].tolist())) > 1:
        elements.append(_element(fabric, "plane1"))
    return elements


def links_of(fabric: Fabric, name: str) -> Ints:
    """Links of a name as `Fabric.find_links` takes it, or of `plane1`; UsageError if unknown."""
    number = name.removeprefix("plane")
    if name in fabric.nodes.names or number == name or not number.isdecimal():
        return fabric.find_links(name)
    switches = np.flatnonzero(fabric.nodes.plane == int(number) - 1)
    if not len(switches):
        raise UsageError(f"{fabric.name} has no {name}")
    inside = np.isin(fabric.links.source, switches) | np.isin(fabric.links.target, switches)
    return np.flatnonzero(inside)


def _element(fabric: Fabric, name: str) -> _Element:
    links = links_of(fabric, name)
    links = links[fabric.links.up[links]]
    if not len(links):
        raise UsageError(f"{name} is already down; name an element that is up")
    if name.removeprefix("plane").isdecimal() and name not in fabric.nodes.names:
        return _Element(name, "plane", links)
    tier = fabric.nodes.tier
    if name in fabric.nodes.names:
        kind = tier_name(int(tier[fabric.nodes.names.index(name)]))
        return _Element(name, kind, links)
    ends = sorted(
        (int(tier[fabric.links.source[links[0]]]), int(tier[fabric.links.target[links[0]]]))
    )
    return _Element(name, f"{tier_name(ends[0])}-{tier_name(ends[1])} link", links)


def _radius(fabric: Fabric, element: _Element) -> BlastRadius:
    lost = np.zeros(len(fabric.links.source), np.bool_)
    lost[element.links] = True
    below = np.flatnonzero(_below(fabric, element.links)[fabric.switches :])
    cut_off, of_host = _hosts_lose(fabric, lost)
    a = int(below[0]) if len(below) else 0
    paths = [paths_between(fabric, a, b) for b in {0, fabric.hosts - 1} - {a}]
    before = max(paths, key=lambda path: (path.longest_links or 0, path.destination))
    b = fabric.nodes.names.index(before.destination) - fabric.switches
    return BlastRadius(
        element=element.name,
        kind=element.kind,
        links=len(element.links),
        hosts_below=len(below),
        hosts_cut_off=cut_off,
        host_capacity_percent=of_host,
        uplink_capacity_percent=_uplinks_lost(fabric, lost),
        source=before.source,
        destination=before.destination,
        paths_before=before.paths,
        paths_after=paths_between(fabric, a, b, lost).paths,
    )


def _below(fabric: Fabric, failed: Ints) -> Bools:
    """bool[nodes]: reached downwards from the lower ends of the links."""
    links, tier = fabric.links, fabric.nodes.tier
    source, target = links.source, links.target
    reached = np.zeros(len(tier), np.bool_)
    lower = tier[source[failed]] < tier[target[failed]]
    reached[np.where(lower, source[failed], target[failed])] = True
    for level in sorted(set(tier.tolist()), reverse=True):
        on = reached[source] & (tier[source] == level) & (tier[target] < level) & links.up
        reached[target[on]] = True
    return reached


def _hosts_lose(fabric: Fabric, lost: Bools) -> tuple[int, float]:
    """(hosts without a remaining port, lost port capacity of the worst host in percent)."""
    ports = fabric.attachments
    there = ports.switch >= 0
    gone = there & (lost[ports.access_link] | lost[ports.exit_link])
    rate = np.where(there, fabric.links.rate_bits_per_second[ports.access_link], 0)
    capacity = np.maximum(rate.sum(1), 1)
    share = np.where(gone, rate, 0).sum(1) / capacity
    return int(((gone == there).all(1) & there.any(1)).sum()), float(100 * share.max())


def _uplinks_lost(fabric: Fabric, lost: Bools) -> float:
    """Lost uplink capacity, in percent, of the worst switch with a remaining link."""
    links, tier = fabric.links, fabric.nodes.tier
    upwards = (
        links.up & (tier[links.target] > tier[links.source]) & (links.source < fabric.switches)
    )
    rate = links.rate_bits_per_second
    capacity, gone = (
        np.bincount(links.source[of], weights=rate[of], minlength=fabric.switches)
        for of in (upwards, upwards & lost)
    )
    left = np.bincount(links.source[links.up & ~lost], minlength=fabric.switches)
    share = gone / np.maximum(capacity, 1)
    alive = left[: fabric.switches] > 0
    return float(100 * share[alive].max(initial=0.0))


# Table sizes of the switches of a fabric: routes and groups of ECMP, entries of static SRv6.
#
# Static SRv6 (micro-segments, arXiv 2605.04333): a switch has one entry for its own segment and one
# per neighbour, so a leaf reads the spine or the host from the address, a spine the leaf; they
# never change when links fail. How the segments are numbered is not public: one each is assumed.


class TableSize(msgspec.Struct, frozen=True, kw_only=True):
    """The largest table sizes of a switch of a tier."""

    tier: str
    routes: Annotated[int, about("sets of hosts behind other switches")]
    groups: Annotated[int, about("equal-cost groups of more than one link")]
    members: Annotated[int, about("links in these groups")]
    static_srv6: Annotated[
        int, about("entries: its own segment and one per link, parallel ones together")
    ]


def table_sizes(fabric: Fabric) -> list[TableSize]:
    """One record per tier, leaves first."""
    switches, links, forwarding = fabric.switches, fabric.links, fabric.forwarding
    routes = (forwarding.group_of >= 0).sum(1)
    sizes = np.diff(forwarding.group_start)
    wide = np.flatnonzero(sizes > 1)
    owner = links.source[forwarding.group_links[forwarding.group_start[wide]]]
    groups = np.bincount(owner, minlength=switches)
    members = np.bincount(owner, weights=sizes[wide], minlength=switches)
    inner = links.up & (links.source < switches)
    nodes = len(fabric.nodes.names)
    pairs = np.unique(links.source[inner].astype(np.int64) * nodes + links.target[inner])
    static = 1 + np.bincount(pairs // nodes, minlength=switches)
    tier = fabric.nodes.tier[:switches]
    return [
        TableSize(
            tier=tier_name(level),
            routes=int(routes[tier == level].max()),
            groups=int(groups[tier == level].max()),
            members=int(members[tier == level].max()),
            static_srv6=int(static[tier == level].max()),
        )
        for level in sorted(set(tier.tolist()))
    ]


# Description and validation of a fabric: tiers, links, reachability, group sizes, bisection.
#
# All counts are per edge (hosts on the same switches), so a fabric of 100,000 hosts needs
# no table of hosts times hosts.

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
        switches = np.flatnonzero(nodes.tier[: fabric.switches] == tier)
        with_uplinks = switches[up[switches] > 0]
        ratio = down[with_uplinks] / up[with_uplinks]
        tiers.append(
            Tier(
                name=tier_name(tier),
                switches=len(switches),
                downlink_bits_per_second=int(down[switches].max()),
                uplink_bits_per_second=int(up[switches].max()),
                oversubscription_min=float(ratio.min()) if len(ratio) else None,
                oversubscription_max=float(ratio.max()) if len(ratio) else None,
            )
        )
    return tiers


def _layer(fabric: Fabric, layer: int, name: str) -> Layer:
    links = fabric.links
    in_layer = links.layer == layer
    rate, delay = links.rate_bits_per_second[in_layer], links.delay_ns[in_layer]
    return Layer(
        name=name,
        links=int(in_layer.sum()),
        down=int((in_layer & ~links.up).sum()),
        rate_min_bits_per_second=int(rate.min()),
        rate_max_bits_per_second=int(rate.max()),
        delay_min_ns=int(delay.min()),
        delay_max_ns=int(delay.max()),
        capacity_bits_per_second=int(links.rate_bits_per_second[in_layer & links.up].sum()),
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
    used_in_layer = (fabric.links.layer[first] == layer) & (used > 0)
    counts = np.bincount(sizes[used_in_layer], weights=used[used_in_layer])
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
        lengths = [depth[s] + 2 for s in starts.tolist() if depth[s] >= 0]
        longest = max([longest or 0, *lengths]) if lengths else longest
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


def next_switches(fabric: Fabric, switch: int, edge: int) -> tuple[int, ...]:
    """The next switches towards an edge; tables may also name hosts, where paths end."""
    group, known = int(fabric.forwarding.group_of[switch, edge]), fabric.next_switches
    if group not in known:
        ends = fabric.links.target[fabric.group(switch, edge)[0]]
        known[group] = tuple(ends[ends < fabric.switches].tolist())
    return known[group]


def depths_to(fabric: Fabric, edge: int, starts: Int32s) -> dict[int, int]:
    """Links on the longest path to an edge of every switch on a path from `starts`.

    LOOP or DEAD_END if some path from the switch does not end at the edge.
    """
    switches = edge_switches(fabric.attachments)[edge]
    depth = {int(s): 0 for s in switches if s >= 0}
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
        used = np.flatnonzero(sums)
        node = np.full(len(used), switches + (not is_first))
        rows.append(node if is_first else used)
        columns.append(used if is_first else node)
        values.append(sums[used])
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
