"""A job as a graph of messages and computations; models of GPUs and their times."""

from __future__ import annotations

from collections.abc import Mapping
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


# Models that jobs train: layers with their gradients and compute times.
#
# Sizes of real models follow from the layers of their papers: AlexNet (one tower, arXiv:1404.5997;
# 61,100,840 parameters), VGG-16 (arXiv:1409.1556; 138,357,544), ResNet-50 (arXiv:1512.03385;
# 25,557,032), BERT-base (arXiv:1810.04805; 109,482,240). How the compute time spreads over layers
# is assumed: a third forward, then the layers backward in equal parts.


def _resnet50() -> tuple[int, ...]:
    """Convolutions and normalisations by block; each block is one layer here."""
    blocks, channels = [64 * 3 * 49 + 128], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(count):
            size = channels * width + 9 * width * width + 4 * width * width + 12 * width
            if block == 0:
                size += channels * 4 * width + 8 * width
            blocks.append(size)
            channels = 4 * width
    return (*blocks, 2048 * 1000 + 1000)


_BLOCK = 4 * (768 * 768 + 768) + (768 * 3072 + 3072) + (3072 * 768 + 768) + 4 * 768
MODELS: Final[Mapping[str, tuple[int, ...]]] = {
    "alexnet": (23_296, 307_392, 663_936, 884_992, 590_080, 37_752_832, 16_781_312, 4_097_000),
    "vgg16": (
        1_792, 36_928, 73_856, 147_584, 295_168, 590_080, 590_080, 1_180_160, 2_359_808,
        2_359_808, 2_359_808, 2_359_808, 2_359_808, 102_764_544, 16_781_312, 4_097_000,
    ),
    "resnet50": _resnet50(),
    "bert-base": (23_837_184, *[_BLOCK] * 12, 768 * 768 + 768),
}  # fmt: skip
"""Parameters per layer, from the front to the back."""
SYNTHETIC: Final[Mapping[str, float]] = {"comm": 2.0, "comp": 0.5}
"""Communication-heavy and computation-heavy: time on the line over time of computing."""
