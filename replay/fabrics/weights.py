"""Weights of equal-cost groups, by the capacity behind every next hop.

A next hop's capacity towards an edge is the smaller of its link's rate and the sum of
the capacities of the next switch (what BGP's link bandwidth extended community carries).
Source: Zhou et al., "WCMP: Weighted Cost Multipathing for Improved Fairness in Data
Centers", EuroSys 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import gcd

import numpy as np

from ...kernels.kernel import Int32s, Ints
from .fabric import Fabric
from .forwarding import Forwarding

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
        own = max(1, int(rates[link]) // 1_000_000)
        behind = of_switch(int(fabric.links.target[link]))
        return own if behind is None else min(own, behind)

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
