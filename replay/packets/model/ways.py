"""Times from host to host through an idle network, store and forward."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Array, Bool, Int, Int32s, Ints, inlined, subkernel
from .arrays import ATTACHED, FabricArrays

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
        found = np.full(len(src), -1, np.int64)
        alike = bool((size == size[:1]).all())
        order = np.arange(len(size)) if alike else np.argsort(size, kind="stable")
        ends = np.stack([src, dst]).astype(np.int32)
        inner = np.empty(arrays.route.shape[::-1], np.int64)
        cost = np.empty(len(arrays.target), np.int64)
        sizes = np.ascontiguousarray(size, np.int64)
        _fill(arrays, ends, sizes, order, longest, cost, inner, found)
        return found


@subkernel
def _fill(
    arrays: FabricArrays,
    ends: Int32s,
    size: Ints,
    order: Ints,
    longest: Bool,
    cost: Ints,
    inner: Ints,
    found: Ints,
) -> None:
    """Set found[n] of `Ways`; ends: int32[2, n], hosts; order: by size. Scratch space: cost,
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
            found[row] = total + last


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
