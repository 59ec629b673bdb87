"""The graph of a job: messages between ranks and computations of ranks, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Array, Int32s, Ints

MOST_NODES = 1 << 24
MOST_EDGES = 1 << 26
MOST_BYTES = 1 << 40
"""Of a message; sums of times stay within int64."""
MOST_PS = 3600 * 10**12
"""Of a computation."""


class Nodes(NamedTuple):
    """int64[N] columns."""

    rank: Ints
    """Sends the message, or computes."""
    to: Ints
    """Receives the message; -1: a computation."""
    size: Ints
    """Bytes of a message, or ps of a computation."""
    iteration: Ints
    """From 0."""
    channel: Ints
    """Messages of a pair of ranks are sent in order on each channel; it has its queue pairs."""


class Edges(NamedTuple):
    """int64[E] columns: `node` waits for `after`."""

    node: Ints
    after: Ints


@dataclass
class Graph:
    """Collects nodes and edges, many at a time."""

    ranks: int
    iteration: int = 0
    """Of the nodes that are added next."""
    count: int = 0
    _nodes: list[tuple[Array, ...]] = field(default_factory=list)
    _edges: list[tuple[Array, Array]] = field(default_factory=list)
    _edge_count: int = 0

    def messages(self, rank: Array, to: Array, size: Array | int, channel: Array | int = 0) -> Ints:
        """Add messages; returns their nodes. A message of 0 bytes has one packet."""
        return self._add(np.asarray(rank), np.asarray(to), size, channel)

    def computations(self, rank: Array, takes_ps: Array | int) -> Ints:
        """Add computations; returns their nodes."""
        rank = np.asarray(rank)
        return self._add(rank, np.full(rank.shape, -1), takes_ps, 0)

    def _add(self, rank: Array, to: Array, size: Array | int, channel: Array | int) -> Ints:
        shape = np.broadcast_shapes(rank.shape, to.shape)
        columns = (rank, to, np.asarray(size), np.int64(self.iteration), np.asarray(channel))
        self._nodes.append(
            tuple(np.broadcast_to(c, shape).astype(np.int64).reshape(-1) for c in columns)
        )
        nodes = self.count + np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        self.count += nodes.size
        if self.count > MOST_NODES:
            raise UsageError(
                f"--jobs: more than {MOST_NODES:,} messages and computations: use fewer workers, "
                "iterations or layers"
            )
        return nodes

    def wait(self, node: Array, after: Array) -> None:
        """Each node waits for the node of `after` in its place; -1 for none. Shapes as numpy
        broadcasts them."""
        node, after = np.broadcast_arrays(node, after)
        kept = (after >= 0) & (node >= 0)
        self._edges.append((node[kept].astype(np.int64), after[kept].astype(np.int64)))
        self._edge_count += int(np.count_nonzero(kept))
        if self._edge_count > MOST_EDGES:
            raise UsageError(f"--jobs: more than {MOST_EDGES:,} dependencies: use fewer workers")

    def nodes(self) -> Nodes:
        """All nodes."""
        if not self._nodes:
            return Nodes(*(np.zeros(0, np.int64) for _ in Nodes._fields))
        return Nodes(*(np.concatenate(c) for c in zip(*self._nodes, strict=True)))

    def edges(self) -> Edges:
        """All edges, each once."""
        if not self._edges:
            return Edges(np.zeros(0, np.int64), np.zeros(0, np.int64))
        node, after = (np.concatenate(c) for c in zip(*self._edges, strict=True))
        both = np.unique(node * max(1, self.count) + after)
        return Edges(*(both // max(1, self.count), both % max(1, self.count)))


LAST: Final = -1
"""`Job.priority`: the last class, whatever classes there are."""


@dataclass(frozen=True)
class Job:
    """A job on its hosts."""

    name: str
    graph: Graph
    hosts: Int32s
    """int32[ranks]"""
    start_ps: int = 0
    release_ps: Ints | None = None
    """int64[nodes]: earliest times of messages that wait for nothing; None: all at the start."""
    qps: int = 1
    """Queue pairs per pair of ranks; every message is split over them."""
    iterations: int = 1
    notes: tuple[str, ...] = ()
    """What its file leaves open."""
    queue_pair: Ints | None = None
    """int64[nodes]: number of the queue pair of each message, with `qps` 1; None: one per pair of
    ranks."""
    priority: int = 0
    """Class of its data, an index of `Model.classes`; LAST for the last one."""
