"""Times from host to host through an idle network, store and forward."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Array, Bool, Int, Int32s, Ints, kernel
from .arrays import ATTACHED, FabricArrays

_DEEPEST = 64
"""Maximum of links of a path: routes of a broken fabric may form a loop."""


class Ways:
    """Times of packets over the equal-cost paths of a fabric; every size is computed once per
    destination."""

    def __init__(self, arrays: FabricArrays) -> None:
        self._arrays = arrays

    def fastest(self, src: Array, dst: Array, size: Array) -> Ints:
        """int64[n]: ps from the begin of a packet of `size` bytes at host `src` until it is at host
        `dst`, by the fastest path; -1 without a path."""
        return self._times(src, dst, size, False)

    def slowest(self, src: Array, dst: Array, size: Array) -> Ints:
        """The same by the slowest of the equal-cost paths."""
        return self._times(src, dst, size, True)

    def _times(self, src: Array, dst: Array, size: Array, longest: bool) -> Ints:
        found = np.full(len(src), -1, np.int64)
        order = np.argsort(size, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(size[order]) != 0, True)) + 1
        begin = 0
        for end in ends.tolist() if len(order) else ():
            rows = order[begin:end]
            found[rows] = self._of_size(src[rows], dst[rows], int(size[rows[0]]), longest)
            begin = end
        return found

    def _of_size(self, src: Array, dst: Array, size: int, longest: bool) -> Ints:
        arrays = self._arrays
        cost = ((size * arrays.ps_per_byte_q20 + (1 << 19)) >> 20) + arrays.delay_ps
        worst = -1 if longest else np.iinfo(np.int64).max
        take = np.maximum if longest else np.minimum
        edge = arrays.host_edge[dst]
        edges, column = np.unique(edge, return_inverse=True)
        inner = np.stack(
            [
                times_towards(
                    arrays.route, int(e), arrays.group_start, arrays.members, arrays.target, cost,
                    longest,
                )
                if e >= 0
                else np.full(arrays.switches, -1, np.int64)
                for e in edges.tolist()
            ]
        )  # fmt: skip
        exits = arrays.exits[dst]
        last = take.reduce(np.where(exits >= 0, cost[exits], worst), axis=1)
        total = np.full(len(src), worst, np.int64)
        any_way = np.zeros(len(src), bool)
        for port in range(arrays.access.shape[1]):
            switch, access = arrays.host_switch[src, port], arrays.access[src, port]
            middle = inner[column.reshape(-1), np.maximum(switch, 0)]
            there = (switch >= 0) & (access >= 0) & (middle >= 0) & (edge >= 0)
            total = np.where(there, take(total, cost[access] + middle), total)
            any_way |= there
        return np.where(any_way, total + last, -1)


@kernel
def times_towards(
    route: Int32s,
    edge: Int,
    group_start: Ints,
    members: Int32s,
    target: Int32s,
    cost: Ints,
    longest: Bool,
) -> Ints:
    """int64[S]: time from each switch to a switch of the edge, by the routes to it; -1: no path.

    cost: int64[L], time of each link. Relaxed until nothing changes: once per link of the longest
    path.
    """
    switches = len(route)
    times = np.full(switches, -1, np.int64)
    for switch in range(switches):
        if route[switch, edge] == ATTACHED:
            times[switch] = 0
    for _ in range(_DEEPEST):
        changed = False
        for switch in range(switches):
            group = route[switch, edge]
            if group < 0:
                continue
            best = times[switch]
            for i in range(group_start[group], group_start[group + 1]):
                link = members[i]
                if target[link] >= switches or times[target[link]] < 0:
                    continue
                time = cost[link] + times[target[link]]
                if best < 0 or (time > best if longest else time < best):
                    best = time
            if best != times[switch]:
                times[switch] = best
                changed = True
        if not changed:
            break
    return times


def by_any_link(arrays: FabricArrays, source: Int32s) -> FabricArrays:
    """Arrays in which every switch may use every link to a switch, for times that no routing beats.

    source: int32[L], node at the begin of each link.
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
