"""Explicit routes instead of shortest paths: ordered next hops with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s
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
    number = {name: i for i, name in enumerate(fabric.nodes.names)}
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
    for route in routes:
        switch, destination = number.get(route.switch), number.get(route.destination)
        if switch is None or switch >= fabric.switches:
            raise UsageError(f"{route.where}: there is no switch {route.switch!r}")
        if destination is None:
            raise UsageError(f"{route.where}: there is no host or leaf {route.destination!r}")
        if destination >= fabric.switches:
            edges = fabric.attachments.edge[[destination - fabric.switches]]
        else:
            here = (fabric.attachments.switch == destination).any(1)
            edges = np.unique(fabric.attachments.edge[here])
        columns = edges[edges >= 0] + column
        links = [_link(fabric, switch, hop, route.where) for hop in route.hops]
        groups.set(switch, columns, links, [hop.weight for hop in route.hops], route.buckets)
    return groups.forwarding()


def edge_per_host(fabric: Fabric) -> Fabric:
    """The same fabric with one edge per host, so that routes can differ by host."""
    edge = fabric.attachments.edge
    attached = np.flatnonzero(edge >= 0)
    own = np.full(len(edge), -1, np.int32)
    own[attached] = np.arange(len(attached))
    forwarding, columns = fabric.forwarding, edge[attached]
    if forwarding.ipv6_from:
        columns = np.concatenate([columns, columns + forwarding.ipv6_from])
    return replace(
        fabric,
        attachments=fabric.attachments._replace(edge=own),
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

    def set(
        self,
        switch: int,
        edges: Int32s,
        links: list[int],
        weights: list[int],
        buckets: Sequence[int] | None,
    ) -> None:
        if not links:
            self._group_of[switch, edges] = -1
            return
        group = len(self._old.group_start) - 1 + len(self._ends)
        self._group_of[switch, edges] = group
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
