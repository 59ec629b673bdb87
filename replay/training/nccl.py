"""Collectives as NCCL sends them over RoCE: connections, grants, slots, kernels and their launch.

A *connection* carries the data of one channel from one rank to another. The receiver grants every
slot of its buffer with a clear-to-send (CTS), a message of its own on the same queue pair, as soon
as its CPU has launched the collective, earlier collectives on the connection are done and a slot is
free. The sender's kernel fills a slot when its input is there and an earlier message has left the
slot; the message leaves when its CTS has arrived. What a rank does on a channel is a *program*:
actions in order, each of which receives from some connections and sends on others.

Order and counts follow NCCL's source (docs/jobs.md); a ring runs loops of two slices per rank, so
small collectives have empty slices. All times of kernels are assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from ...kernels.kernel import Array, Int32s, Ints
from ..jobs.collectives import Graph, Job

CTS_BYTES: Final = 64
SLICES: Final = 2
"""Of a chunk: what a rank passes on in one step of a ring (Simple protocol)."""
RING_SLOTS, TREE_SLOTS, PAIR_SLOTS = 4, 8, 8
"""Credits: slots of a connection's buffer (8 steps; two per slice of a ring)."""
CHUNK_BYTES: Final = 512
"""Parts of the data of a ring are multiples of this, but for the last one (assumed)."""
COPY_PS: Final = 1_000_000
"""1 us: a kernel copies or reduces a slice."""
KERNEL_PS: Final = 5_000_000
"""5 us: a kernel starts."""

Kind: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
DATA, GRANT, HIDDEN = 1, 2, 3
"""Kinds of messages: HIDDEN ones are signals inside a host."""


@dataclass
class Connection:
    """One way of one channel between two ranks."""

    communicator: str
    channel: int
    sender: int
    receiver: int
    slots: int
    slot_bytes: int
    queue_pairs: list[int]
    """Numbers within the job; messages use them in turn, grants the first one."""
    data: list[int] = field(default_factory=list)
    """Nodes of messages, like the next two."""
    grants: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    """The receiver's actions, which free the slots."""
    posted: int = 0
    """Receives of the collectives so far."""


@dataclass
class Action:
    """A step of a program: receives one message each, then sends `size` bytes each."""

    receives: Sequence[Connection] = ()
    sends: Sequence[Connection] = ()
    size: int = 0


Programs: TypeAlias = dict[int, list[list[Action]]]
"""By rank: its programs, which run at the same time."""


@dataclass
class Collective:
    """One operation of a communicator, with the nodes that tell its times."""

    kind: Kind
    communicator: str
    step: int
    size: int
    arrivals: dict[int, int]
    """By rank: its kernel starts."""
    ends: dict[int, int]
    """By rank: its kernel ends."""


@dataclass(frozen=True)
class Message:
    """What a node of the graph carries on the wire."""

    kind: int
    connection: int
    """Index in `Nccl.connections`; -1: hidden."""
    number: int
    """Within the connection, from 0."""
    size: int
    step: int


class Nccl:
    """The traffic of one job: a graph, and what its nodes are."""

    def __init__(self, ranks: int, queue_pairs: int = 1) -> None:
        self.ranks = ranks
        self.step = 0
        """Of the nodes that are added next."""
        self.connections: list[Connection] = []
        self.collectives: list[Collective] = []
        self.messages: dict[int, Message] = {}
        """By node."""
        self._per_connection = queue_pairs
        self._queue_pairs = 0
        self._by_ends: dict[tuple[str, int, int, int], Connection] = {}
        self._index: dict[int, int] = {}
        self._columns: tuple[list[int], ...] = ([], [], [], [])
        self._edges: tuple[list[int], list[int]] = ([], [])

    # Nodes.

    def compute(self, rank: int, takes_ps: int, after: Iterable[int] = ()) -> int:
        """A computation, or an event if it takes no time; returns its node."""
        return self._add(rank, -1, takes_ps, 0, after)

    def signal(self, rank: int, to: int, after: Iterable[int]) -> int:
        """A message inside a host, which no tap shows."""
        node = self._add(rank, to, 0, -1 - rank * self.ranks - to, after)
        self.messages[node] = Message(HIDDEN, -1, 0, 0, self.step)
        return node

    def _add(self, rank: int, to: int, size: int, queue_pair: int, after: Iterable[int]) -> int:
        node = len(self._columns[0])
        for column, value in zip(self._columns, (rank, to, size, queue_pair), strict=True):
            column.append(value)
        self.wait(node, after)
        return node

    def wait(self, node: int, after: Iterable[int]) -> None:
        """Let a node wait for others at its rank, or for messages to its rank."""
        for other in after:
            self._edges[0].append(node)
            self._edges[1].append(other)

    def job(self, name: str, hosts: Int32s, start_ps: int) -> Job:
        """The job on hosts, one per rank; its nodes are those of the graph."""
        rank, to, size, queue_pair = (np.array(column, np.int64) for column in self._columns)
        graph = Graph(self.ranks)
        graph.messages(rank, to, size)
        graph.wait(*(np.array(column, np.int64) for column in self._edges))
        return Job(name, graph, hosts, start_ps, queue_pair=queue_pair)

    # Connections and collectives.

    def connection(
        self, communicator: str, channel: int, sender: int, receiver: int, slots: int, slot: int
    ) -> Connection:
        """The connection between two ranks, made on first use."""
        ends = (communicator, channel, sender, receiver)
        if ends not in self._by_ends:
            first = self._queue_pairs
            self._queue_pairs += self._per_connection
            pairs = list(range(first, self._queue_pairs))
            made = Connection(communicator, channel, sender, receiver, slots, slot, pairs)
            self._by_ends[ends] = made
            self._index[id(made)] = len(self.connections)
            self.connections.append(made)
        return self._by_ends[ends]

    def run(
        self,
        kind: Kind,
        communicator: str,
        size: int,
        programs: Programs,
        ready: dict[int, list[int]],
        launched: dict[int, int],
    ) -> dict[int, int]:
        """Add an operation. ready: by rank, nodes before which its kernel cannot start; launched:
        by rank, the node with which its CPU launches it. Returns by rank the end of its kernel."""
        arrivals = {
            rank: self.compute(rank, KERNEL_PS, [*ready[rank], launched[rank]]) for rank in programs
        }
        self._send(programs)
        self._grant(programs, launched)
        ends = {
            rank: self._execute(rank, every, arrivals[rank]) for rank, every in programs.items()
        }
        self.collectives.append(Collective(kind, communicator, self.step, size, arrivals, ends))
        return ends

    def _send(self, programs: Programs) -> None:
        """The messages of all actions, in the order of each connection."""
        for every in programs.values():
            for action in (action for program in every for action in program):
                for connection in action.sends:
                    number = len(connection.data)
                    pairs = connection.queue_pairs
                    pair = pairs[number % len(pairs)]
                    node = self._add(connection.sender, connection.receiver, action.size, pair, ())
                    connection.data.append(node)
                    index = self._index[id(connection)]
                    self.messages[node] = Message(DATA, index, number, action.size, self.step)

    def _grant(self, programs: Programs, launched: dict[int, int]) -> None:
        """The grants of all receives; `_execute` adds what frees their slots."""
        used = {
            self._index[id(connection)]: connection
            for every in programs.values()
            for program in every
            for action in program
            for connection in action.sends
        }
        for index, connection in used.items():
            before = connection.taken[-1:]
            for number in range(len(connection.grants), len(connection.data)):
                grant = self._add(
                    connection.receiver,
                    connection.sender,
                    CTS_BYTES,
                    connection.queue_pairs[0],
                    [launched[connection.receiver], *before],
                )
                connection.grants.append(grant)
                self.wait(connection.data[number], [grant])
                self.messages[grant] = Message(GRANT, index, number, CTS_BYTES, self.step)

    def _execute(self, rank: int, programs: list[list[Action]], arrival: int) -> int:
        """The kernel of a rank; returns the node of its end."""
        ends = []
        for program in programs:
            last = arrival
            for action in program:
                node = self.compute(rank, COPY_PS, [last])
                for connection in action.receives:
                    number = len(connection.taken)
                    self.wait(node, [connection.data[number]])
                    connection.taken.append(node)
                    later = number + connection.slots
                    if later < len(connection.grants):
                        self.wait(connection.grants[later], [node])
                for connection in action.sends:
                    number = connection.posted
                    connection.posted += 1
                    self.wait(connection.data[number], [node])
                    if number >= connection.slots:
                        self.wait(node, [connection.data[number - connection.slots]])
                last = node
            ends.append(last)
        return self.compute(rank, 0, ends)


# Programs of collectives. `members` are ranks in the order of the communicator.


@dataclass(frozen=True)
class Channels:
    """How a communicator sends."""

    name: str
    members: tuple[int, ...]
    count: int = 1
    slot: int = 1 << 20
    """Bytes of a slot: a slice of a ring, a chunk of pairs; half of it in trees."""


def _shares(size: int, parts: int) -> list[int]:
    return [size // parts + (part < size % parts) for part in range(parts)]


def ring(nccl: Nccl, to: Channels, kind: Kind, size: int) -> Programs:
    """All-reduce: 2 (n - 1) steps around the ring; all-gather and reduce-scatter: n - 1."""
    n = len(to.members)
    rounds = 2 * (n - 1) if kind == "all_reduce" else n - 1
    programs: Programs = {rank: [] for rank in to.members}
    for channel, share in enumerate(_shares(size, to.count)):
        order = _ring_order(to.members, channel)
        chunks = _loops(share, n, to.slot)
        for at, rank in enumerate(order):
            following, before = order[(at + 1) % n], order[at - 1]
            send = nccl.connection(to.name, channel, rank, following, RING_SLOTS, to.slot)
            receive = nccl.connection(to.name, channel, before, rank, RING_SLOTS, to.slot)
            program = []
            for chunk in chunks:
                for step in range(rounds + 1):
                    for size_of_slice in _slices(chunk[(at - step) % n], to.slot):
                        program.append(
                            Action(
                                [receive] if step else [],
                                [send] if step < rounds else [],
                                size_of_slice,
                            )
                        )
            programs[rank].append(program)
    return programs


def _ring_order(members: tuple[int, ...], channel: int) -> list[int]:
    """Odd channels run the other way round, as rings on different NICs often do."""
    return list(members if channel % 2 == 0 else members[::-1])


def _loops(share: int, parts: int, slot: int) -> list[list[int]]:
    """Bytes of each part in every loop; a part has at most SLICES slots in a loop. Small data is in
    the first parts, the others are empty."""
    loops, most = [], parts * SLICES * slot
    while share > 0:
        size = min(share, most)
        part = min(SLICES * slot, -(-size // (parts * CHUNK_BYTES)) * CHUNK_BYTES)
        loops.append([max(0, min(part, size - at * part)) for at in range(parts)])
        share -= size
    return loops


def _slices(chunk: int, slot: int) -> list[int]:
    """SLICES parts, the first ones full; 0 for empty slices, which are sent too."""
    piece = min(slot, max(-(-chunk // (16 * SLICES)) * 16, slot // 32))
    return [max(0, min(piece, chunk - part * piece)) for part in range(SLICES)]


def tree(nccl: Nccl, to: Channels, size: int) -> Programs:
    """All-reduce up and down a binary tree; odd channels have the mirrored tree."""
    n, slot = len(to.members), max(1, to.slot // 2)
    programs: Programs = {rank: [] for rank in to.members}
    for channel, share in enumerate(_shares(size, to.count)):
        order = list(to.members if channel % 2 == 0 else to.members[::-1])
        pieces = [min(slot, share - at) for at in range(0, share, slot)]
        for at, rank in enumerate(order):
            below = [order[child] for child in (2 * at + 1, 2 * at + 2) if child < n]
            above = [order[(at - 1) // 2]] if at else []

            def edges(pairs: list[tuple[int, int]], channel: int = channel) -> list[Connection]:
                return [nccl.connection(to.name, channel, a, b, TREE_SLOTS, slot) for a, b in pairs]

            up_in, up_out = edges([(c, rank) for c in below]), edges([(rank, p) for p in above])
            down_in = edges([(p, rank) for p in above])
            down_out = edges([(rank, c) for c in below])
            if at == 0:
                programs[rank].append([Action(up_in, down_out, piece) for piece in pieces])
            else:
                programs[rank].append([Action(up_in, up_out, piece) for piece in pieces])
                programs[rank].append([Action(down_in, down_out, piece) for piece in pieces])
    return programs


def pairs(nccl: Nccl, to: Channels, sizes: dict[tuple[int, int], int]) -> Programs:
    """Sends and receives of one group: bytes by (sender, receiver), spread over the channels."""
    programs: Programs = {}
    for (sender, receiver), size in sizes.items():
        for channel, share in enumerate(_shares(size, to.count)):
            edge = nccl.connection(to.name, channel, sender, receiver, PAIR_SLOTS, to.slot)
            pieces = [min(to.slot, share - at) for at in range(0, share, to.slot)]
            programs.setdefault(sender, []).append([Action((), [edge], piece) for piece in pieces])
            programs.setdefault(receiver, []).append(
                [Action([edge], (), piece) for piece in pieces]
            )
    return programs


def uneven(
    members: tuple[int, ...], size: int, skew: float, rng: np.random.Generator
) -> dict[tuple[int, int], int]:
    """Bytes of an all-to-all by (sender, receiver): the shares of a rank's `size` bytes are drawn
    (Dirichlet); skew 0: nearly equal."""
    n = len(members)
    sizes: dict[tuple[int, int], int] = {}
    for sender in members:
        others = [rank for rank in members if rank != sender]
        shares: Array = rng.dirichlet(np.full(n - 1, 1 / max(skew, 1e-3) ** 2))
        amounts: Ints = np.maximum(1, (shares * size).astype(np.int64))
        sizes |= {(sender, rank): int(a) for rank, a in zip(others, amounts, strict=True)}
    return sizes
