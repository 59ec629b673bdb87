"""Equal-cost forwarding: for every switch and edge the ordered group of links to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...analyzer.statistics.per_flow import roomier
from ...kernels.kernel import Bools, Int, Int32s, Ints, NamedTuple, UInt16s, kernel


class Groups(NamedTuple):
    """As in `Forwarding`."""

    start: Ints
    links: Int32s
    weights: Ints
    of: Int32s


class Forwarding(NamedTuple):
    """Groups of links, each stored once; `group_of` is the group that a switch uses."""

    group_start: Ints
    """int64[groups + 1]: start of each group in the two arrays below."""
    group_links: Int32s
    """Links of all groups, each group in next-hop order."""
    group_weights: Ints
    """Weight of each of these links, 1 for equal cost."""
    group_of: Int32s
    """int32[switches, edges]: -1 without a route and at the switches of the edge."""
    buckets: Mapping[int, UInt16s] = MappingProxyType({})
    """Resilient groups: position in the group of every bucket (`Group.buckets`)."""
    ipv6_from: int = 0
    """The column of `group_of` with the group of IPv6 to the first edge; the other edges follow.
    0: packets of both families use the same groups."""

    @property
    def groups(self) -> Groups:
        """The groups as one argument of kernels."""
        return Groups(self.group_start, self.group_links, self.group_weights, self.group_of)

    def of_family(self, version: int) -> Int32s:
        """int32[switches, edges]: `group_of` of packets of IPv4 or IPv6."""
        if not self.ipv6_from:
            return self.group_of
        four, six = self.group_of[:, : self.ipv6_from], self.group_of[:, self.ipv6_from :]
        return np.ascontiguousarray(four if version == 4 else six)


def shortest_paths(
    source: Int32s, target: Int32s, up: Bools, switches: int, edge_switches: Int32s
) -> Forwarding:
    """Forwarding along all shortest paths (fewest hops) between switches.

    source, target, up: one item per one-way link; links of hosts (nodes from `switches` on)
    are not transit. edge_switches: int32[edges, ports], -1 for none. The links of a group
    keep their order. Time grows with links times edges, memory with switches times edges.
    """
    between = np.flatnonzero((source < switches) & (target < switches) & up).astype(np.int32)
    out_links, out_start = _by(source, between, switches)
    in_links, in_start = _by(target, between, switches)
    edges = len(edge_switches)
    group_of = np.full((switches, edges), -1, np.int32)
    distance = np.empty(switches, np.int16)
    queue = np.empty(switches, np.int32)
    state = np.zeros(2, np.int64)  # groups, links in groups
    start = np.zeros(1024, np.int64)
    links = np.empty(4096, np.int32)
    slots = np.full(4096, -1, np.int32)
    owner = np.empty(1024, np.int32)
    edge: Int = 0
    # One edge adds at most one group per switch, of at most all its links.
    room_groups, room_links = switches + 1, len(between) + 1
    while edge < edges:
        start = roomier(start, int(state[0]) + room_groups + 1)
        owner = roomier(owner, int(state[0]) + room_groups + 1)
        links = roomier(links, int(state[1]) + room_links)
        if len(slots) < 2 * len(start):
            slots = np.full(1 << (2 * len(start)).bit_length(), -1, np.int32)
            _refill(slots, start, links, owner, state)
        edge = _paths(
            out_links,
            target[out_links],
            out_start,
            source[in_links],
            in_start,
            edge_switches,
            edge,
            room_groups,
            room_links,
            distance,
            queue,
            group_of,
            state,
            start,
            links,
            owner,
            slots,
        )
    groups, used = int(state[0]), int(state[1])
    return Forwarding(
        start[: groups + 1].copy(), links[:used].copy(), np.ones(used, np.int64), group_of
    )


def without_links(forwarding: Forwarding, up: Bools) -> Forwarding:
    """The groups without links that are down, as a router removes them by itself."""
    keep = up[forwarding.group_links]
    groups = len(forwarding.group_start) - 1
    group = np.repeat(np.arange(groups), np.diff(forwarding.group_start))
    sizes = np.bincount(group[keep], minlength=groups)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    empty = np.append(sizes == 0, True)  # item -1 serves the -1 of `group_of`
    group_of = np.where(empty[forwarding.group_of], -1, forwarding.group_of).astype(np.int32)
    buckets = {
        int(g): _rebalanced(table, keep[group == g]) for g, table in forwarding.buckets.items()
    }
    return Forwarding(
        start,
        forwarding.group_links[keep],
        forwarding.group_weights[keep],
        group_of,
        buckets,
        forwarding.ipv6_from,
    )


def _rebalanced(buckets: UInt16s, keep: Bools) -> UInt16s:
    """Buckets of lost next hops go to the remaining next hops in turn; the others stay."""
    if not keep.any():
        return buckets[:0]
    position = np.cumsum(keep) - 1
    lost = ~keep[buckets]
    moved = position[buckets]
    moved[lost] = np.arange(np.count_nonzero(lost)) % np.count_nonzero(keep)
    return moved.astype(np.uint16)


def _by(end: Int32s, links: Int32s, switches: int) -> tuple[Int32s, Ints]:
    """The links sorted by one end, and the start of each switch's links."""
    order = np.argsort(end[links], kind="stable")
    counts = np.bincount(end[links], minlength=switches)
    return links[order], np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@kernel
def _paths(
    out_links: Int32s,
    out_target: Int32s,
    out_start: Ints,
    in_source: Int32s,
    in_start: Ints,
    edge_switches: Int32s,
    edge: Int,
    room_groups: Int,
    room_links: Int,
    distance: NDArray[np.int16],
    queue: Int32s,
    group_of: Int32s,
    state: Ints,
    start: Ints,
    links: Int32s,
    owner: Int32s,
    slots: Int32s,
) -> Int:
    """Fill `group_of` edge by edge; returns the first edge that may not fit."""
    switches, edges = group_of.shape
    while (
        edge < edges
        and state[0] + room_groups < len(start)
        and state[1] + room_links <= len(links)
        and 2 * (state[0] + room_groups) <= len(slots)
    ):
        for s in range(switches):
            distance[s] = -1
        last = 0
        for port in range(edge_switches.shape[1]):
            s = edge_switches[edge, port]
            if s >= 0 and distance[s] < 0:
                distance[s] = 0
                queue[last] = s
                last += 1
        first = 0
        while first < last:
            s = queue[first]
            first += 1
            if distance[s] > 0:
                group_of[s, edge] = _group(
                    s, out_links, out_target, out_start, distance, state, start, links, owner, slots
                )
            for i in range(in_start[s], in_start[s + 1]):
                neighbour = in_source[i]
                if distance[neighbour] < 0:
                    distance[neighbour] = distance[s] + 1
                    queue[last] = neighbour
                    last += 1
        edge += 1
    return edge


@kernel
def _group(
    s: Int,
    out_links: Int32s,
    out_target: Int32s,
    out_start: Ints,
    distance: NDArray[np.int16],
    state: Ints,
    start: Ints,
    links: Int32s,
    owner: Int32s,
    slots: Int32s,
) -> Int:
    """The group of a switch's links that lead one hop closer; equal groups are stored once."""
    at = state[1]
    size = 0
    closer = distance[s] - 1  # 0 or more: unreached switches have -1
    h = np.uint64(s)
    for i in range(out_start[s], out_start[s + 1]):
        if distance[out_target[i]] == closer:
            link = out_links[i]
            links[at + size] = link
            h = (h ^ np.uint64(link)) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
            size += 1
    mask = np.uint64(len(slots) - 1)
    slot = h & mask
    while True:
        group = slots[slot]
        if group < 0:
            group = np.int32(state[0])
            slots[slot] = group
            owner[group] = s
            start[group + 1] = at + size
            state[0] += 1
            state[1] = at + size
            return group
        begin = start[group]
        if owner[group] == s and start[group + 1] - begin == size:
            same = True
            for i in range(size):
                if links[begin + i] != links[at + i]:
                    same = False
                    break
            if same:
                return group
        slot = (slot + np.uint64(1)) & mask


@kernel
def _refill(slots: Int32s, start: Ints, links: Int32s, owner: Int32s, state: Ints) -> None:
    """Put the known groups into a larger hash table."""
    mask = np.uint64(len(slots) - 1)
    for group in range(state[0]):
        h = np.uint64(owner[group])
        for i in range(start[group], start[group + 1]):
            h = (h ^ np.uint64(links[i])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        slot = h & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = group
