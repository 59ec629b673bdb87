"""Tasks of ranks as files describe them, sends and receives apart, as the graph of a job.

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
from ..packets.model.model import Edges, earliest
from .collectives import Collective
from .graph import MOST_BYTES, MOST_EDGES, MOST_NODES, MOST_PS, Graph


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
        for one, other in zip(tasks, after, strict=True):
            self.wait(one, other)

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
                own = self._processor[task]
                if own in last:
                    chain.append((place[task], place[last[own]]))
                last[own] = task
        if chain:
            graph.wait(*np.array(chain, np.int64).T)
        return graph
