"""A job as a graph of messages and computations, and the collectives in it.

A collective gets `ready`, nodes after which each rank may begin (int64[ranks, any], -1 for none),
and returns the same for what follows: nodes after which each rank has its result. `size` is the
data of a rank in bytes: the buffer that is reduced, gathered (all ranks' parts together),
scattered, or sent to all others.

Algorithms: ring, halving-doubling and all-to-all as in Thakur, Rabenseifner, Gropp, "Optimization
of Collective Communication Operations in MPICH", IJHPCA 2005; two binary trees: Sanders, Speck,
Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
2009 (here each tree is the mirror of the other); hierarchical: reduce-scatter inside groups,
all-reduce between them, all-gather inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


PIECE_BYTES = 1 << 16
"""Of a tree: what a rank passes on at once."""
MOST_PIECES = 4096
"""Larger messages have larger pieces."""
LEAST_TOKENS = 64
"""Bytes of the smallest message of an uneven all-to-all."""


def _none(graph: Graph) -> Ints:
    return np.full((graph.ranks, 1), -1, np.int64)


def _shares(size: int, parts: int) -> int:
    return max(1, -(-size // parts))


def _ring_steps(
    graph: Graph, members: Array, size: int, steps: int, ready: Ints
) -> tuple[Ints, Ints]:
    """(nodes of the last step, nodes of the step that each rank receives last) of `steps` around
    rings, one per row of members; each message has `size` bytes."""
    following = np.roll(members, -1, axis=1)
    before, last = None, np.zeros(0, np.int64)
    for _ in range(steps):
        last = graph.messages(members, following, size)
        if before is None:
            graph.wait(last[..., None], ready[members])
        else:
            graph.wait(last, np.roll(before, 1, axis=1))
        before = last
    return last, np.roll(last, 1, axis=1)


def _by_rank(graph: Graph, members: Array, *nodes: Array) -> Ints:
    """int64[ranks, columns]: nodes of members at the rows of their ranks."""
    columns = [np.asarray(n).reshape(members.size, -1) for n in nodes]
    rows = np.full((graph.ranks, sum(c.shape[1] for c in columns)), -1, np.int64)
    rows[members.reshape(-1)] = np.concatenate(columns, axis=1)
    return rows


def ring(graph: Graph, size: int, ready: Ints) -> Ints:
    """All-reduce: reduce-scatter and all-gather, 2 (n - 1) steps."""
    return _around(graph, size, ready, 2)


def half_ring(graph: Graph, size: int, ready: Ints) -> Ints:
    """Reduce-scatter or all-gather: n - 1 steps."""
    return _around(graph, size, ready, 1)


def _around(graph: Graph, size: int, ready: Ints, rounds: int) -> Ints:
    n = graph.ranks
    if n < 2:
        return ready
    members = np.arange(n)[None]
    sent, got = _ring_steps(graph, members, _shares(size, n), rounds * (n - 1), ready)
    return _by_rank(graph, members, sent, got)


def tree(graph: Graph, size: int, ready: Ints) -> Ints:
    """All-reduce in two binary trees with half of the data each: rank i of a tree has the parent
    (i - 1) // 2. A piece goes up when it arrived from all children, and down when it arrived from
    above. The trees are channels of their own, so that no message of one waits for the other."""
    n = graph.ranks
    if n < 2:
        return ready
    half = -(-size // 2)
    pieces = min(MOST_PIECES, max(1, -(-half // PIECE_BYTES)))
    lengths = np.full(pieces, half // pieces) + (np.arange(pieces) < half % pieces)
    done = []
    for channel, order in enumerate((np.arange(n), np.arange(n)[::-1])):
        up = np.full((n, pieces), -1, np.int64)
        for at in range(n - 1, 0, -1):  # children have larger numbers
            parent = (at - 1) // 2
            up[at] = graph.messages(
                np.full(pieces, order[at]), order[parent], np.maximum(1, lengths), channel
            )
            graph.wait(up[at][:, None], ready[order[at]])
            for child in (2 * at + 1, 2 * at + 2):
                if child < n:
                    graph.wait(up[at], up[child])
        down = np.full((n, pieces), -1, np.int64)
        for at in range(1, n):
            parent = (at - 1) // 2
            down[at] = graph.messages(
                np.full(pieces, order[parent]), order[at], np.maximum(1, lengths), channel
            )
            if parent:
                graph.wait(down[at], down[parent])
                continue
            graph.wait(down[at][:, None], ready[order[0]])
            for child in (1, 2):
                if child < n:
                    graph.wait(down[at], up[child])
        # A rank has its result when the last piece arrived; the root when its children's arrived.
        last = np.full((n, 2), -1, np.int64)
        last[1:, 0] = down[1:, -1]
        last[0] = [up[child, -1] if child < n else -1 for child in (1, 2)]
        done.append(_by_rank(graph, order, last))
    return np.concatenate(done, axis=1)


def halving_doubling(graph: Graph, size: int, ready: Ints) -> Ints:
    """All-reduce: recursive vector halving, then distance doubling back. Ranks beyond the largest
    power of two hand their data to a partner first and get the result at the end."""
    n = graph.ranks
    if n < 2:
        return ready
    core = 1 << (n.bit_length() - 1)
    extra = np.arange(core, n)
    state = ready
    if len(extra):
        folded = graph.messages(extra, extra - core, max(1, size))
        graph.wait(folded[:, None], ready[extra])
        state = np.concatenate([ready, _none(graph)], axis=1)
        state[extra - core, -1] = folded
    ranks = np.arange(core)
    steps = core.bit_length() - 1
    order = [*range(steps), *reversed(range(steps))]
    sent = np.zeros(0, np.int64)
    for step in order:
        partner = ranks ^ (core >> (step + 1))
        sent = graph.messages(ranks, partner, _shares(size, 2 << step))
        graph.wait(sent[:, None], state[ranks])
        state = np.concatenate([state, _by_rank(graph, ranks, sent[partner])], axis=1)
    result = np.concatenate([state, _by_rank(graph, ranks, sent)], axis=1)
    if not len(extra):
        return result
    back = graph.messages(extra - core, extra, max(1, size))
    graph.wait(back[:, None], result[extra - core])
    more = _none(graph)
    more[extra, 0] = back
    return np.concatenate([result, more], axis=1)


def hierarchical(group: int) -> Collective:
    """All-reduce in groups of this many consecutive ranks: a ring reduce-scatter inside, ring
    all-reduces of the parts between the groups, a ring all-gather inside."""

    def all_reduce(graph: Graph, size: int, ready: Ints) -> Ints:
        n = graph.ranks
        if group < 1 or n % group:
            raise UsageError(f"--jobs: group={group} does not divide {n} workers")
        inside = np.arange(n).reshape(-1, group)
        across = np.ascontiguousarray(inside.T)
        part, state = _shares(size, group), ready
        if group > 1:
            sent, got = _ring_steps(graph, inside, part, group - 1, state)
            state = _by_rank(graph, inside, sent, got)
        others = n // group
        if others > 1:
            sent, got = _ring_steps(graph, across, _shares(part, others), 2 * (others - 1), state)
            state = _by_rank(graph, across, sent, got)
        if group > 1:
            sent, got = _ring_steps(graph, inside, part, group - 1, state)
            state = _by_rank(graph, inside, sent, got)
        return state

    return all_reduce


def all_to_all(graph: Graph, size: int, ready: Ints) -> Ints:
    """Every rank sends an equal share to every other one, all at once, the next rank first."""
    n = graph.ranks
    if n < 2:
        return ready
    return _exchange(graph, np.full((n, n), _shares(size, n)), ready)


def _exchange(graph: Graph, sizes: Array, ready: Ints) -> Ints:
    """All-to-all of sizes[from, to], all at once."""
    n = graph.ranks
    src = np.arange(n)[:, None]
    dst = (src + np.arange(1, n)[None]) % n
    nodes = graph.messages(src, dst, np.maximum(1, sizes[src, dst]))
    graph.wait(nodes[:, :, None], ready[:, None, :])
    # Rank d receives from s as the ((d - s) % n - 1)-th message of s.
    shift = np.arange(1, n)[None]
    got = nodes[(src - shift) % n, shift - 1]
    return np.concatenate([nodes, got], axis=1)


def uneven_sizes(ranks: int, size: int, skew: float, rng: np.random.Generator) -> Ints:
    """int64[ranks, ranks]: bytes of an all-to-all in which the k-th most popular destination gets a
    share in proportion to k^-skew (Zipf); the popularity is drawn. skew 0: equal."""
    weight = (np.arange(1, ranks + 1) ** -float(skew))[rng.permutation(ranks)]
    sizes = np.maximum(LEAST_TOKENS, np.rint(size * weight / weight.sum())).astype(np.int64)
    return np.tile(sizes, (ranks, 1))


def experts(skew: float, compute_ps: int, rng: np.random.Generator) -> Collective:
    """Mixture of experts: tokens go to the ranks of their experts, which compute in proportion to
    what they get (`compute_ps` for an equal share), and come back."""

    def moe(graph: Graph, size: int, ready: Ints) -> Ints:
        n = graph.ranks
        if n < 2:
            return ready
        sizes = uneven_sizes(n, size, skew, rng)
        state = _exchange(graph, sizes, ready)
        if compute_ps:
            share = sizes.sum(0) / max(1.0, float(sizes.sum()) / n)
            work = graph.computations(np.arange(n), np.rint(share * compute_ps).astype(np.int64))
            graph.wait(work[:, None], state)
            state = work[:, None]
        return _exchange(graph, np.ascontiguousarray(sizes.T), state)

    return moe


def uneven(skew: float, rng: np.random.Generator) -> Collective:
    """All-to-all with unequal shares of the destinations."""

    def exchange(graph: Graph, size: int, ready: Ints) -> Ints:
        n = graph.ranks
        return ready if n < 2 else _exchange(graph, uneven_sizes(n, size, skew, rng), ready)

    return exchange


def from_root(graph: Graph, size: int, ready: Ints, root: int = 0) -> Ints:
    """Broadcast: a binary tree below the root."""
    return _rooted(graph, size, ready, root, down=True)


def to_root(graph: Graph, size: int, ready: Ints, root: int = 0) -> Ints:
    """Reduce: a binary tree to the root."""
    return _rooted(graph, size, ready, root, down=False)


def _rooted(graph: Graph, size: int, ready: Ints, root: int, *, down: bool) -> Ints:
    n = graph.ranks
    state = np.concatenate([ready, np.full((n, 2), -1, np.int64)], axis=1)
    for at in range(1, n) if down else range(n - 1, 0, -1):
        child, parent = (root + at) % n, (root + (at - 1) // 2) % n
        ends = (parent, child) if down else (child, parent)
        node = graph.messages(np.array([ends[0]]), np.array([ends[1]]), max(1, size))
        graph.wait(node, state[ends[0]])
        state[ends[1], -1 if down or at % 2 else -2] = node[0]
    return state


Collective = Callable[[Graph, int, "Ints"], "Ints"]

ALL_REDUCES: Mapping[str, Collective] = {
    "ring": ring,
    "tree": tree,
    "halving-doubling": halving_doubling,
}
PLAIN: Mapping[str, Collective] = {
    **ALL_REDUCES,
    "reduce-scatter": half_ring,
    "all-gather": half_ring,
    "all-to-all": all_to_all,
    "broadcast": from_root,
    "reduce": to_root,
}
