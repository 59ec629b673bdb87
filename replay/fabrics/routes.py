"""Routes over a fabric and their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import gcd
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
from .fabric import Fabric
from .forwarding import Forwarding


class Hop(NamedTuple):
    """A next hop: a switch, with `#2` for the second of parallel links."""

    via: str
    weight: int


class Route(NamedTuple):
    """Next hops of a switch towards a host, or towards all hosts of a leaf."""

    switch: str
    destination: str
    hops: Sequence[Hop]
    where: str
    """Place in the file, for errors."""
    buckets: Sequence[int] | None = None
    """Resilient groups: the next hop of every bucket, as an index into `hops`."""


def with_routes(
    fabric: Fabric, routes: Sequence[Route], of_ipv6: Sequence[Route] | None = None
) -> Fabric:
    """The fabric with these routes in place of shortest paths; other routes do not change.

    A route without a next hop leads nowhere. of_ipv6: routes of IPv6 that differ from those. The
    fabric does not recompute forwarding when links go down: next hops over them are lost.
    UsageError names an invalid route.
    """
    number = fabric.number
    hosts = [*routes, *(of_ipv6 or ())]
    if any(number.get(route.destination, 0) >= fabric.switches for route in hosts):
        fabric = edge_per_host(fabric)
    fabric = replace(fabric, forwarding=_with(fabric, routes, number, 0), routed=False)
    if of_ipv6:
        fabric = replace(fabric, forwarding=with_ipv6(fabric.forwarding))
        first = fabric.forwarding.ipv6_from
        fabric = replace(fabric, forwarding=_with(fabric, of_ipv6, number, first))
    return fabric


def with_ipv6(forwarding: Forwarding) -> Forwarding:
    """The same forwarding, in which groups of IPv6 have their own columns."""
    if forwarding.ipv6_from:
        return forwarding
    four = forwarding.group_of
    return forwarding._replace(
        group_of=np.concatenate([four, four], axis=1), ipv6_from=four.shape[1]
    )


def _with(
    fabric: Fabric, routes: Sequence[Route], number: Mapping[str, int], column: int
) -> Forwarding:
    """The forwarding with these routes. column: that of the first edge."""
    groups = _Groups(fabric.forwarding)
    of_hops: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
    """Links and weights of the same hops of a switch: many routes share one list."""
    columns_of: dict[int, Int32s] = {}
    """Of each destination."""
    for route in routes:
        switch, destination = number.get(route.switch), number.get(route.destination)
        if switch is None or switch >= fabric.switches:
            raise UsageError(f"{route.where}: there is no switch {route.switch!r}")
        if destination is None:
            raise UsageError(f"{route.where}: there is no host or leaf {route.destination!r}")
        if destination not in columns_of:
            columns_of[destination] = _edges_of(fabric, destination) + column
        hops = switch, id(route.hops)
        if hops not in of_hops:
            links = tuple(_link(fabric, switch, hop, route.where) for hop in route.hops)
            of_hops[hops] = links, tuple(hop.weight for hop in route.hops)
        groups.set(switch, columns_of[destination], *of_hops[hops], route.buckets)
    return groups.forwarding()


def _edges_of(fabric: Fabric, destination: int) -> Int32s:
    """The edges of a host, or of all hosts of a leaf."""
    if destination >= fabric.switches:
        edges = fabric.attachments.edge[[destination - fabric.switches]]
    else:
        is_attached = (fabric.attachments.switch == destination).any(1)
        edges = np.unique(fabric.attachments.edge[is_attached])
    return edges[edges >= 0]


def edge_per_host(fabric: Fabric) -> Fabric:
    """The same fabric with one edge per host, so that routes can differ by host."""
    edge = fabric.attachments.edge
    attached = np.flatnonzero(edge >= 0)
    edge_of_host = np.full(len(edge), -1, np.int32)
    edge_of_host[attached] = np.arange(len(attached))
    forwarding, columns = fabric.forwarding, edge[attached]
    if forwarding.ipv6_from:
        columns = np.concatenate([columns, columns + forwarding.ipv6_from])
    return replace(
        fabric,
        attachments=fabric.attachments._replace(edge=edge_of_host),
        forwarding=forwarding._replace(
            group_of=np.ascontiguousarray(forwarding.group_of[:, columns]),
            ipv6_from=len(attached) if forwarding.ipv6_from else 0,
        ),
    )


def _link(fabric: Fabric, switch: int, hop: Hop, where: str) -> int:
    """The link from a switch to a next hop."""
    name = fabric.nodes.names[switch]
    via, number, which = hop.via.partition("#")
    try:
        return int(fabric.find_links(f"{name}>{via}{number}{which}")[0])
    except UsageError:
        raise UsageError(f"{where}: {name} has no link to {hop.via!r}") from None


class _Groups:
    """Forwarding to which groups can be added."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._old = forwarding
        self._group_of = forwarding.group_of.copy()
        self._links: list[int] = []
        self._weights: list[int] = []
        self._ends: list[int] = []
        self._buckets = dict(forwarding.buckets)
        self._known: dict[tuple[tuple[int, ...], ...], int] = {}
        """The number of each group by its content."""

    def set(
        self,
        switch: int,
        edges: Int32s,
        links: tuple[int, ...],
        weights: tuple[int, ...],
        buckets: Sequence[int] | None,
    ) -> None:
        if not links:
            self._group_of[switch, edges] = -1
            return
        group = len(self._old.group_start) - 1 + len(self._ends)
        content = links, weights, tuple(buckets or ())
        self._group_of[switch, edges] = self._known.setdefault(content, group)
        if self._known[content] < group:
            return
        if buckets is not None:
            self._buckets[group] = np.array(buckets, np.uint16)
        self._links += links
        self._weights += weights
        self._ends.append(len(self._links))

    def forwarding(self) -> Forwarding:
        old = self._old
        ends = int(old.group_start[-1]) + np.array(self._ends, np.int64)
        return Forwarding(
            np.concatenate([old.group_start, ends]),
            np.concatenate([old.group_links, np.array(self._links, np.int32)]),
            np.concatenate([old.group_weights, np.array(self._weights, np.int64)]),
            self._group_of,
            self._buckets,
            old.ipv6_from,
        )


# Weights of equal-cost groups, by the capacity behind every next hop.
#
# A next hop's capacity towards an edge is the smaller of its link's rate and the sum of
# the capacities of the next switch (what BGP's link bandwidth extended community carries).
# Source: Zhou et al., "WCMP: Weighted Cost Multipathing for Improved Fairness in Data
# Centers", EuroSys 2014.

MOST_WEIGHT = 255
"""Maximum weight: switches repeat a member by its weight, in tables of limited size."""


def with_capacity_weights(fabric: Fabric) -> Fabric:
    """The fabric with its own group for every switch and edge, weighted by capacity."""
    return _weighted(fabric, _capacities)


def with_path_weights(fabric: Fabric) -> Fabric:
    """The fabric weighted by the shortest paths behind every link, each as fast as its slowest.

    What W-ECMP announces in arXiv 2507.21372 (appendix F): with two paths of 800 Gb/s behind each
    of four links, one of which has lost one, weights are [1600, 1600, 1600, 800]. Unlike
    `with_capacity_weights`, the rate of the link itself does not hide losses behind it.
    """
    return _weighted(fabric, _paths)


def _weighted(fabric: Fabric, measure: Callable[[Fabric, int], Callable[[int], int]]) -> Fabric:
    old = fabric.forwarding
    group_of = np.full_like(old.group_of, -1)
    links: list[Int32s] = []
    weights: list[Ints] = []
    numbers: dict[bytes, int] = {}
    for edge in range(old.group_of.shape[1]):
        capacity = measure(fabric, edge)
        for switch in np.flatnonzero(old.group_of[:, edge] >= 0).tolist():
            members = _members(fabric, switch, edge)
            weight = _small(np.array([capacity(int(link)) for link in members], np.int64))
            key = members.tobytes() + weight.tobytes()
            if key not in numbers:
                numbers[key] = len(links)
                links.append(members)
                weights.append(weight)
            group_of[switch, edge] = numbers[key]
    start = np.cumsum([0, *(len(members) for members in links)]).astype(np.int64)
    forwarding = Forwarding(
        start,
        np.concatenate([np.zeros(0, np.int32), *links]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int64), *weights]).astype(np.int64),
        group_of,
        ipv6_from=old.ipv6_from,
    )
    return replace(fabric, forwarding=forwarding)


def _small(capacity: Ints) -> Ints:
    """Weights proportional to capacities: exact up to MOST_WEIGHT, otherwise rounded."""
    exact = capacity // gcd(*capacity.tolist())
    if exact.max() <= MOST_WEIGHT:
        return exact
    rounded: Ints = np.maximum(1, np.rint(exact * MOST_WEIGHT / exact.max())).astype(np.int64)
    return rounded


def _capacities(fabric: Fabric, edge: int) -> Callable[[int], int]:
    """Capacity of a link towards an edge, in Mb/s (weights stay small), at least 1."""
    rates = fabric.links.rate_bits_per_second

    @cache
    def of_switch(switch: int) -> int | None:
        """None: unlimited, the hosts are attached here."""
        members = _members(fabric, switch, edge)
        if not len(members):
            return None
        return sum(of_link(int(link)) for link in members)

    @cache
    def of_link(link: int) -> int:
        capacity = max(1, int(rates[link]) // 1_000_000)
        behind = of_switch(int(fabric.links.target[link]))
        return capacity if behind is None else min(capacity, behind)

    return of_link


def _paths(fabric: Fabric, edge: int) -> Callable[[int], int]:
    """Sum over the paths by a link towards an edge of their slowest link, in Mb/s, at least 1."""
    rates = fabric.links.rate_bits_per_second

    @cache
    def of_link(link: int, limit: int) -> int:
        slowest = min(limit, max(1, int(rates[link]) // 1_000_000))
        behind = _members(fabric, int(fabric.links.target[link]), edge)
        return sum(of_link(int(other), slowest) for other in behind) if len(behind) else slowest

    return lambda link: of_link(link, 1 << 40)


def _members(fabric: Fabric, switch: int, edge: int) -> Int32s:
    """Next hops, each once: tables may repeat them in place of weights."""
    members, _ = fabric.group(switch, edge)
    _, first = np.unique(members, return_index=True)
    return members if len(first) == len(members) else members[np.sort(first)]
