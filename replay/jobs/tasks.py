"""The tasks of a job on the hosts of a fabric.

A receive is complete when the message has arrived and what the receive waits for is done; the k-th
receive of a rank from another one with a tag takes the k-th such message. Computations of one
processor of a rank run one after the other, in the order in which they could begin if messages took
no time.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Floats, Int32s, Ints
from ..fabrics.fabric import Fabric
from ..generate.queue_pairs import QueuePairs
from ..packets.model.model import PS, Edges, earliest
from .collectives import LAST, MOST_BYTES, MOST_EDGES, MOST_NODES, MOST_PS, Collective, Graph, Job

# Traffic of a pattern beside jobs: messages that wait for nothing, at the times of the pattern.


def background(name: str, pairs: QueuePairs, hosts: int) -> Job:
    """All messages of a pair begin at the start of the pair, in order; pair i has queue pair i.
    They are in the last class of data."""
    graph = Graph(hosts)
    times = pairs.messages
    graph.messages(
        np.repeat(pairs.src, times),
        np.repeat(pairs.dst, times),
        np.repeat(pairs.message_bytes, times),
    )
    return Job(
        f"background {name}",
        graph,
        np.arange(hosts, dtype=np.int32),
        release_ps=np.repeat(pairs.start_ns, times) * PS,
        queue_pair=np.repeat(np.arange(len(pairs)), times),
        priority=LAST,
    )


# Hosts of jobs.

PACKED, SPREAD, DRAWN = "packed", "spread", "random"
PLACEMENTS = (PACKED, SPREAD, DRAWN)


class FreeHosts:
    """The hosts that no job has yet; hosts without a link are never free."""

    def __init__(self, fabric: Fabric) -> None:
        attached = (fabric.attachments.switch >= 0).any(1)
        self._leaf: Ints = fabric.attachments.switch.max(1).astype(np.int64)
        self._free: Ints = np.flatnonzero(attached)
        self._fabric = fabric

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int, how: str, name: str, seed: int) -> Int32s:
        """Hosts for the ranks of a job: in port order (packed), leaf by leaf in turn (spread), or
        drawn (random). UsageError if there are too few."""
        free = self._free
        if count > len(free):
            raise UsageError(
                f"--jobs: {name} has {count:,} workers, but {self._fabric.name} has "
                f"{len(free):,} free hosts"
            )
        if how == SPREAD:
            leaf = self._leaf[free]
            order = np.argsort(leaf, kind="stable")
            starts = np.searchsorted(leaf[order], leaf[order])
            turn = np.empty(len(free), np.int64)
            turn[order] = np.arange(len(free)) - starts
            free = free[np.lexsort((leaf, turn))]
        elif how == DRAWN:
            free = np.random.default_rng(seed).permutation(free)
        chosen = free[:count]
        self._free = np.setdiff1d(self._free, chosen)
        return chosen.astype(np.int32)


# Training jobs: every worker computes layer by layer, and a collective follows each layer.
#
# A third of the compute time is forward, the rest is spread evenly over the layers, from the back
# of the model to its front (as in `aggregate`; assumed). The collective of a layer begins at a rank
# when the rank has computed the layer and its previous collective is done there; the next iteration
# begins when both are done.


def training(
    ranks: int,
    sizes: Sequence[int],
    iterations: int,
    compute_ps: int,
    slowness: Floats,
    collective: Collective,
) -> Graph:
    """The graph of a job. sizes: bytes of each layer, in the order in which they are computed.
    slowness: float64[iterations, ranks], compute time over `compute_ps`."""
    graph = Graph(ranks)
    every = np.arange(ranks)
    ready = np.full((ranks, 1), -1, np.int64)
    forward = compute_ps // 3
    for number in range(iterations):
        graph.iteration = number
        computed, done = ready, np.full((ranks, 1), -1, np.int64)
        for layer, size in enumerate(sizes):
            part = (compute_ps - forward) * (layer + 1) // len(sizes)
            part -= (compute_ps - forward) * layer // len(sizes)
            part += forward if layer == 0 else 0
            if compute_ps:
                work = graph.computations(every, np.rint(slowness[number] * part).astype(np.int64))
                graph.wait(work[:, None], computed)
                computed = work[:, None]
            done = collective(graph, size, np.concatenate([computed, done], axis=1))
        ready = np.concatenate([computed, done], axis=1)
    return graph


@dataclass
class Tasks:
    """Collects tasks. `where` in errors: the file. Names of tasks are for errors."""

    where: str
    ranks: int
    _rank: list[int] = field(default_factory=list)
    _to: list[int] = field(default_factory=list)
    _size: list[int] = field(default_factory=list)
    _channel: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _edges: array[int] = field(default_factory=lambda: array("q"))
    """Task and predecessor in turn: a file may have many millions."""
    _processor: dict[int, tuple[int, int]] = field(default_factory=dict)
    _sent: defaultdict[tuple[int, int, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _wanted: defaultdict[tuple[int, int, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def fail(self, text: str) -> UsageError:
        """The error of this file."""
        return UsageError(f"--jobs: {self.where}: {text}")

    def _check_rank(self, rank: int, name: str) -> None:
        if not 0 <= rank < self.ranks:
            raise self.fail(f"{name}: there is no rank {rank}; there are {self.ranks:,} ranks")

    def _add(self, rank: int, to: int, size: int, name: str, channel: int = 0) -> int:
        self._check_rank(rank, name)
        most = MOST_BYTES if to >= 0 else MOST_PS
        if not 0 <= size <= most:
            what = "bytes" if to >= 0 else "ps"
            raise self.fail(f"{name}: {size:,} {what} are not 0 to {most:,}")
        if len(self._rank) >= MOST_NODES:
            raise self.fail(f"more than {MOST_NODES:,} tasks")
        self._rank.append(rank)
        self._to.append(to)
        self._size.append(size)
        self._channel.append(channel)
        self._names.append(name)
        return len(self._rank) - 1

    def send(self, rank: int, to: int, size: int, name: str, tag: int | None = None) -> int:
        """A message; with a tag it needs a receive. Returns the task."""
        self._check_rank(to, name)
        if rank == to:
            raise self.fail(f"{name}: rank {rank} sends to itself")
        task = self._add(rank, to, size, name)
        if tag is not None:
            self._sent[rank, to, tag].append(task)
        return task

    def receive(self, rank: int, source: int, tag: int, name: str) -> int:
        """The end of a message."""
        self._check_rank(source, name)
        task = self.compute(rank, 0, name)
        self._wanted[source, rank, tag].append(task)
        return task

    def compute(self, rank: int, takes_ps: int, name: str, processor: int | None = None) -> int:
        """A computation; those of one processor exclude each other."""
        task = self._add(rank, -1, takes_ps, name)
        if processor is not None and takes_ps:
            self._processor[task] = rank, processor
        return task

    def collective(
        self, members: list[int], entries: list[int], size: int, made: Collective, name: str
    ) -> list[int]:
        """The messages of a collective; returns a task per member that ends it there."""
        part = Graph(len(members))
        every = np.arange(len(members))
        first = part.computations(every, 0)
        done = made(part, size, first[:, None])
        last = part.computations(every, 0)
        part.wait(last[:, None], np.concatenate([first[:, None], done], axis=1))
        nodes, edges = part.nodes(), part.edges()
        shift = len(self._rank)
        columns = (nodes.rank, nodes.to, nodes.size, nodes.channel)
        for rank, to, amount, channel in zip(*(c.tolist() for c in columns), strict=True):
            self._add(members[rank], members[to] if to >= 0 else -1, amount, name, channel)
        self._wait_all((edges.node + shift).tolist(), (edges.after + shift).tolist())
        self._wait_all((first + shift).tolist(), entries)
        return (last + shift).tolist()

    def wait(self, task: int, after: int) -> None:
        """A task begins after another one of its rank."""
        if len(self._edges) >= 2 * MOST_EDGES:
            raise self.fail(f"more than {MOST_EDGES:,} dependencies")
        self._edges.append(task)
        self._edges.append(after)

    def _wait_all(self, tasks: Sequence[int], after: Sequence[int]) -> None:
        for waiting, other in zip(tasks, after, strict=True):
            self.wait(waiting, other)

    def graph(self) -> Graph:
        """The graph, its nodes in an order that they can be done in. UsageError for messages
        without a receive or tasks in a circle, with a name."""
        for key in self._sent.keys() | self._wanted.keys():
            sent, wanted = self._sent.get(key, []), self._wanted.get(key, [])
            if len(sent) != len(wanted):
                more = sent if len(sent) > len(wanted) else wanted
                name = self._names[more[min(len(sent), len(wanted))]]
                raise self.fail(
                    f"{name}: messages from rank {key[0]} to rank {key[1]} with tag {key[2]}: "
                    f"{len(sent):,} sent, {len(wanted):,} received"
                )
            self._wait_all(wanted, sent)
        n = len(self._rank)
        node, after = np.array(self._edges, np.int64).reshape(-1, 2).T
        size = np.array(self._size, np.int64)
        to = np.array(self._to, np.int64)
        channel = np.array(self._channel, np.int64)
        zero = np.zeros(n, np.int64)
        takes = np.where(to < 0, size, 0)
        begin, order = earliest(
            n, Edges(node, after, np.zeros(len(node), np.uint8)), zero, np.stack([takes, takes])
        )
        if len(order) < n:
            held = np.ones(n, np.bool_)
            held[order] = False
            names = Counter(self._names[i] for i in np.flatnonzero(held)[:3].tolist())
            raise self.fail(
                f"{int(held.sum()):,} tasks form a dependency cycle: {', '.join(names)}"
            )
        order = order[np.argsort(begin[order], kind="stable")]
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        graph = Graph(self.ranks)
        rank = np.array(self._rank, np.int64)
        for run in np.split(order, np.flatnonzero(np.diff((to[order] < 0).astype(np.int8))) + 1):
            if len(run) and to[run[0]] < 0:
                graph.computations(rank[run], size[run])
            elif len(run):
                graph.messages(rank[run], to[run], np.maximum(1, size[run]), channel[run])
        graph.wait(place[node], place[after])
        last: dict[tuple[int, int], int] = {}
        chain = []
        for task in order.tolist():
            if task in self._processor:
                processor = self._processor[task]
                if processor in last:
                    chain.append((place[task], place[last[processor]]))
                last[processor] = task
        if chain:
            graph.wait(*np.array(chain, np.int64).T)
        return graph
