"""Predecessors of messages beyond the one in `Workload.after`, and computations of hosts.

Messages and computations are the nodes of a graph: node m < M is message m of the workload, node
M + c is computation c. A node begins when all its predecessors are complete at its host.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Array, Bytes, Int, Int32s, Ints, kernel
from ....kernels.named import NamedTuple


class Waits(NamedTuple):
    """Edges, and computations. Phases (barriers) cannot have computations after the first."""

    node: Int32s
    """int32[E]: what waits."""
    after: Int32s
    """int32[E]: what must be complete."""
    on: Bytes
    """uint8[E]: ON_ACKED or ON_RECEIVED, as in `Workload.on`; ON_ACKED of computations."""
    host: Int32s
    """int32[C]: host of each computation."""
    takes_ps: Ints
    """int64[C]: from its last predecessor to its end, at least 0."""


NO_WAITS = Waits(
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.uint8),
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
)


LATEST_PS = 1 << 61
"""26 days. Later starts are set to this, so that sums stay within int64."""


class Edges(NamedTuple):
    """All edges of a workload, as in `Waits`."""

    node: Array
    after: Array
    on: Array


def all_with_all(node: Array, after: Array, times: Ints, begin: Ints) -> tuple[Array, Array]:
    """Edges between all parts of nodes. times, begin: number of parts of each node, and its first
    part. The new edges of an edge are consecutive."""
    each = times[node] * times[after]
    edge = np.repeat(np.arange(len(node)), each)
    inside = np.arange(len(edge)) - np.repeat(np.cumsum(each) - each, each)
    one, other = np.divmod(inside, times[after][edge])
    return begin[node[edge]] + one, begin[after[edge]] + other


def earliest(nodes: int, edges: Edges, release: Ints, takes: Ints) -> tuple[Ints, Ints]:
    """(start of each node if only its predecessors delay it, at most LATEST_PS; order of
    nodes).

    release: int64[nodes], after the last predecessor. takes: int64[2, nodes], until the node is
    complete at either end, by `Edges.on`. The order has every node after its predecessors; nodes of
    cycles, and what waits for them, are missing.
    """
    by_after = np.argsort(edges.after, kind="stable")
    start = np.searchsorted(edges.after[by_after], np.arange(nodes + 1)).astype(np.int64)
    begin = release.astype(np.int64)
    order = np.empty(nodes, np.int64)
    done = _walk(
        start,
        edges.node[by_after].astype(np.int64),
        edges.on[by_after].astype(np.int64),
        np.bincount(edges.node, minlength=nodes).astype(np.int64),
        release.astype(np.int64),
        np.ascontiguousarray(takes, np.int64),
        begin,
        order,
    )
    return begin, order[: int(done)]


@kernel
def _walk(
    start: Ints,
    following: Ints,
    on: Ints,
    left: Ints,
    release: Ints,
    takes: Ints,
    begin: Ints,
    order: Ints,
) -> Int:
    """Fill begin and order (Kahn, CACM 1962); returns the number of ordered nodes."""
    found = np.int64(0)
    for node in range(len(left)):
        if left[node] == 0:
            order[found] = node
            found += 1
    at = np.int64(0)
    while at < found:
        node = order[at]
        at += 1
        for i in range(start[node], start[node + 1]):
            successor = following[i]
            ready = min(begin[node] + takes[on[i], node] + release[successor], LATEST_PS)
            begin[successor] = max(begin[successor], ready)
            left[successor] -= 1
            if left[successor] == 0:
                order[found] = successor
                found += 1
    return found
