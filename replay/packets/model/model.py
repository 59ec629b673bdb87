"""The model that both drivers of the packet-level replay simulate, and its conventions.

**Time** is int64 picoseconds from the start of the traffic. A packet of n bytes takes
`service_ps` = (n * ps_per_byte_q20 + 2**19) >> 20 on a link; exact wherever 8e12 / rate is whole.

**Links** are store and forward. A packet whose service starts at s keeps its link busy until
s + service(bytes + gap) and arrives at the next node, whole, at s + service(bytes) + delay.
A node passes an arrived packet to an output link at once. The NIC of a host is its access link:
it serves ACKs like any other packet, and pulls a data packet when it is free.

**Two classes.** ACKs (and trimmed packets) have strict priority over data, without preemption.

**Ties.** At one node and instant: first messages are released, then the free links
start their next queued packet (departures before arrivals; ports of a host in
their order), then arrivals are handled in the order of the arriving links' numbers. After
every arrival the links are served again, so a packet that arrives at an idle link starts at
once, and the second of two simultaneous arrivals waits even if it is an ACK. A link that
becomes free at t counts as idle for an arrival at t.

**Queue** of a link at an instant: the packets waiting and the one in service. A data packet that
has to wait is dropped (or trimmed) when it, the data waiting and the packet in service exceed the
buffer; an ACK, when it and the ACKs waiting do. With `drop` random, the packets that compete for
the same place have the same chance: those that arrive while the queue is full, and the last packet
that found a place. Switches decide on ECN when the service of a data packet starts, by the data
waiting then, this packet included: probability 0 at `ecn_low_bytes` (Kmin) to `ecn_most` (Pmax) at
`ecn_high_bytes` (Kmax), linear between, and 1 above. `ecn_last_hop` says whether the links to hosts
mark, too.

**Hosts.** Messages of a flow (QP) are sent in order; packets of captured messages not before their
times. The flows of a host with packets to send take turns packet by packet (round robin; a flow
joins at the end when its message is released). After a data packet its port stays idle for a random
part, up to `jitter`, of the packet's service time. The label of a packet is chosen when its service
starts (data) or when it is queued (ACKs). A receiver sends an ACK when a data packet has arrived
and `ack_every` packets of its message are unacknowledged, or its message is complete; over the port
at which the packet arrived. A message is complete when ACKs for all its packets have arrived at the
sender.

**Computations** of a host run beside everything else and send nothing. A message or computation
begins when all its predecessors are complete (`Waits`).

**Packets** are identified by one positive int64, `packet_key`: message, number within
the message, and flags. The number of a packet over all messages is
`workload.packet_start[message] + number`. An ACK has the key of the packet that triggered it, and
the flag ACK.

**Random numbers** are functions of seed, purpose, packet or pointer, and draw (`draws.py`), never
of a stream. So both drivers and any number of threads get the same numbers.

Model source: htsim as described in "Load Balancing for AI Training Workloads" (arXiv 2507.21372)
and docs/reproductions.md; ties and turns of flows are not specified there.

**Waits** are the predecessors of messages beyond the one in `Workload.after`, and computations.
Messages and computations are the nodes of a graph: node m < M is message m of the workload, node
M + c is computation c. A node begins when all its predecessors are complete at its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Array, Bools, Bytes, Int, Int32s, Ints, NamedTuple, inlined, kernel
from ...results import SwitchHash
from ...traffic.traffic import Traffic
from .queueing import MOST_CLASSES, PauseOutcome, Pfc, TrafficClass
from .records import CACHE_LINE, Records, layout


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
    part, other = np.divmod(inside, times[after][edge])
    return begin[node[edge]] + part, begin[after[edge]] + other


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
    ordered = np.int64(0)
    for node in range(len(left)):
        if left[node] == 0:
            order[ordered] = node
            ordered += 1
    at = np.int64(0)
    while at < ordered:
        node = order[at]
        at += 1
        for i in range(start[node], start[node + 1]):
            successor = following[i]
            ready = min(begin[node] + takes[on[i], node] + release[successor], LATEST_PS)
            begin[successor] = max(begin[successor], ready)
            left[successor] -= 1
            if left[successor] == 0:
                order[ordered] = successor
                ordered += 1
    return ordered


PS = 1_000
"""Picoseconds of a nanosecond."""
NEVER = np.int64(1 << 62)
"""Later than any time."""

NUMBER_BITS = 28
NUMBER_MASK = (1 << NUMBER_BITS) - 1
MOST_MESSAGES = 1 << 28
MOST_PACKETS = 1 << NUMBER_BITS
"""Packets of one message."""
ACK = 1 << 56
MARKED = 1 << 57
"""Congestion Experienced; an ACK echoes it."""
TRIMMED = 1 << 58
"""Only the header is left; its ACK is a NACK."""
AGAIN = 1 << 59
"""Retransmission."""
IDENTITY = ACK - 1
"""Message and number without flags."""

RANDOM, TAIL = "random", "tail"
"""Values of `Model.drop`."""
JITTER = 0.01
"""Default gap of hosts where queues can be full. Hosts at exactly the line rate keep their phases
forever, so that the same host finds the free place of a full queue each time ("phase effects":
Floyd, Jacobson, "Traffic Phase Effects in Packet-Switched Gateways", 1991)."""

DEFAULT_PFC = Pfc()
"""Of models without a buffer."""


@inlined
def packet_key(message: Int, number: Int) -> Int:
    """The key of a data packet; number < MOST_PACKETS."""
    return (np.int64(message) << np.int64(NUMBER_BITS)) | np.int64(number)


@inlined
def message_of(packet: Int) -> Int:
    """Message of a packet key with or without flags."""
    return (packet & np.int64(IDENTITY)) >> np.int64(NUMBER_BITS)


@inlined
def number_of(packet: Int) -> Int:
    """Number within the message, from 0."""
    return packet & np.int64(NUMBER_MASK)


@inlined
def service_ps(size: Int, ps_per_byte_q20: Int) -> Int:
    """Transmission time of `size` bytes; no overflow below 2**20 bytes at 1 Mb/s or more."""
    return (size * ps_per_byte_q20 + np.int64(1 << 19)) >> np.int64(20)


@dataclass(frozen=True)
class Model:
    """Packets and queues. Sizes are bytes on the wire, headers included.

    Default overheads: 64 B header and ACK, no gap, that is 41.6 ns at 800 Gb/s (the reference
    tables of docs/reproductions.md). The paper itself has 62 B, 64 B and a gap of 20 B.
    """

    payload_bytes: int = 4096
    header_bytes: int = 64
    ack_bytes: int = 64
    gap_bytes: int = 0
    """Between packets on the wire; the link is busy, but the arrival is not delayed."""
    ack_every: int = 1
    buffer_bytes: int | None = None
    """Data per output queue, and the same for ACKs; None: lossless."""
    trim_bytes: int | None = None
    """Data packets that do not fit are cut to this and queued with the ACKs; None: dropped."""
    ecn_low_bytes: int | None = None
    ecn_high_bytes: int | None = None
    """Equal to ecn_low_bytes for a single threshold; None for both: no marking."""
    ecn_most: float = 1.0
    """Pmax: the probability of a mark at ecn_high_bytes; above it every packet is marked
    (Zhu et al., SIGCOMM 2015, figure 5)."""
    ecn_last_hop: bool = True
    """Whether switches mark on links to hosts; off for MRC, so that a mark means a congested path
    and not a busy receiver."""
    drop: str = RANDOM
    """Which packet a full queue drops or trims: the arriving one (TAIL), or one of those that
    compete for the place, at random (RANDOM)."""
    jitter: float | None = None
    """Gaps between the data packets of a host: uniform from 0 to this share of a packet's service
    time. None: JITTER if queues can be full, else 0."""

    pfc: Pfc | None = DEFAULT_PFC
    """Switches with a shared buffer that pause their neighbours, as RoCE fabrics do; the default
    without `buffer_bytes`. None: queues of `buffer_bytes`, or without a limit (arXiv 2507.21372).
    """

    classes: tuple[TrafficClass, ...] = (TrafficClass(),)
    """Classes of data, by `Workload.priority`; ACKs and CNPs precede them all."""
    cut_through: bool = False
    """Whether switches forward a packet when its header has arrived, where no link that leaves
    them is faster than the incoming link; else they store it first."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.classes) <= MOST_CLASSES:
            raise UsageError(f"classes must be 1 to {MOST_CLASSES}, not {len(self.classes)}")
        if len({each.name for each in self.classes}) < len(self.classes):
            raise UsageError("classes must have different names")
        if len(self.classes) > 1 and self.buffer_bytes is not None:
            raise UsageError("classes need PFC or infinite queues: buffer_bytes is for one class")
        if self.pfc is None and self.buffer_bytes is None:
            for each in self.classes:
                if not each.lossless or each.alpha is not None or each.xoff_bytes is not None:
                    raise UsageError(f"{each.name}: thresholds need PFC, not infinite queues")
        if self.buffer_bytes is not None:
            if self.pfc is DEFAULT_PFC:
                object.__setattr__(self, "pfc", None)
            elif self.pfc is not None:
                raise UsageError("buffer_bytes (queues that drop) cannot be combined with PFC")
        for name, least, most in (
            ("payload_bytes", 1, 1 << 16),
            ("header_bytes", 0, 1 << 10),
            ("ack_bytes", 1, 1 << 14),
            ("gap_bytes", 0, 1 << 10),
            ("ack_every", 1, 1 << 14),
        ):
            if not least <= getattr(self, name) <= most:
                raise UsageError(
                    f"{name} must be {least:,} to {most:,}, not {getattr(self, name):,}"
                )
        if self.drop not in (RANDOM, TAIL):
            raise UsageError(f"drop must be {RANDOM} or {TAIL}, not {self.drop}")
        if not 0.0 <= (self.jitter or 0.0) <= 1.0:
            raise UsageError(f"jitter must be 0 to 1, not {self.jitter:g}")
        packet = self.payload_bytes + self.header_bytes
        if self.buffer_bytes is not None and self.buffer_bytes < packet:
            raise UsageError(
                f"a buffer of {self.buffer_bytes:,} B is smaller than a packet of {packet:,} B"
            )
        if (self.ecn_low_bytes is None) != (self.ecn_high_bytes is None):
            raise UsageError("ECN needs both its thresholds, low and high")
        if (self.ecn_low_bytes or 0) > (self.ecn_high_bytes or 0):
            raise UsageError("the low ECN threshold is above the high threshold")
        if not 0.0 < self.ecn_most <= 1.0:
            raise UsageError(f"ecn_most must be above 0 and at most 1, not {self.ecn_most:g}")

    def described(self) -> dict[str, str]:
        """The settings in force, by field."""
        settings = {key: str(value) for key, value in vars(self).items() if value is not None}
        settings.pop("pfc", None)
        if self.pfc is not None:
            settings |= self.pfc.described()
        elif self.buffer_bytes is None:
            settings["lossless"] = "infinite"
        if self.ecn_low_bytes is None:
            del settings["ecn_most"], settings["ecn_last_hop"]
        if self.buffer_bytes is None:
            del settings["drop"]
        del settings["classes"]
        if self.classes != (TrafficClass(),):
            settings["classes"] = ", ".join(each.described() for each in self.classes)
        if not self.cut_through:
            del settings["cut_through"]
        settings["jitter"] = f"{100 * self.host_jitter:g}%"
        return settings

    @property
    def host_jitter(self) -> float:
        """The longest gap of hosts as a share of a packet's service time."""
        if self.jitter is None:
            drops = self.buffer_bytes is not None or not all(each.lossless for each in self.classes)
            return JITTER if drops else 0.0
        return self.jitter


LINE_RATE = 1 << 20


def pace_of(rate_share: float) -> int:
    """Interval between data packets at a share of the line rate, over the service time of a
    packet, scaled by 2**20 (LINE_RATE)."""
    return round(LINE_RATE / rate_share)


class Workload(NamedTuple):
    """What hosts send: F flows (QPs), M messages, sorted by flow and order in the flow."""

    src: Int32s
    """int32[F]: sending host."""
    dst: Int32s
    """int32[F]: receiving host."""
    flow: Int32s
    """int32[M]: flow of each message, ascending."""
    flow_start: Ints
    """int64[F + 1]: first message of each flow."""
    packets: Ints
    """int64[M], at least 1."""
    packet_start: Ints
    """int64[M + 1]: number, over all messages, of the first packet of each message."""
    packet_bytes: Ints
    """int64[M]: wire size of the packets of a message except the last, at most 65,535."""
    last_bytes: Ints
    """int64[M]: wire size of the last packet."""
    release_ps: Ints
    """int64[M]: earliest time; from the end of the predecessor or barrier, if there is one."""
    after: Int32s
    """int32[M]: the predecessor, which must be complete first, -1 for none. `on` is the end at
    which it must be complete: the end that sends this message."""
    on: Bytes
    """uint8[M]: ON_ACKED (the predecessor has the same source) or ON_RECEIVED (its
    destination is this one's source)."""
    phase: Int32s
    """int32[M]: messages of phase p are released when all earlier phases are complete (barriers);
    from 0."""
    traffic: Traffic
    """2U units, for strategies that hash headers: unit f < F is the data of flow f, unit U + u the
    ACKs of unit u. U is F unless flows have several entropy values."""
    due_ps: Ints = np.zeros(0, np.int64)
    """int64[P]: earliest time of each packet of messages without predecessors, by number over all
    messages; empty if messages are released as a whole."""
    wire_bytes: Int32s = np.zeros(0, np.int32)
    """int32[P]: wire size of each packet, at most 65,535; `packet_bytes` is then the largest of
    each message. Empty if `packet_bytes` and `last_bytes` are exact."""
    unit: Int32s = np.zeros(0, np.int32)
    """int32[P]: unit of each packet, below U; empty if it is the unit of the flow."""
    priority: Bytes = np.zeros(0, np.uint8)
    """uint8[F]: class of each flow, an index of `Model.classes`; empty if all have the first."""
    waits: Waits = NO_WAITS
    """Further predecessors of messages, and computations."""

    @property
    def nodes(self) -> int:
        """Messages and computations."""
        return len(self.flow) + len(self.waits.host)

    @property
    def edges(self) -> Edges:
        """All predecessors, those of `after` first."""
        rows, more = np.flatnonzero(self.after >= 0), self.waits
        return Edges(
            np.concatenate([rows, more.node]),
            np.concatenate([self.after[rows], more.after]),
            np.concatenate([self.on[rows], more.on]),
        )

    def nodes_of(self, phase: int) -> Bools:
        """bool[nodes]: the messages of a phase, and with the first phase the computations."""
        work = np.full(len(self.waits.host), phase == 0)
        return np.concatenate([self.phase == phase, work])

    @property
    def at_once(self) -> Bools:
        """bool[nodes]: without predecessors."""
        free = np.ones(self.nodes, np.bool_)
        free[: len(self.after)] = self.after < 0
        free[self.waits.node] = False
        return free

    @property
    def units(self) -> int:
        """U."""
        return len(self.traffic) // 2 if len(self.unit) else len(self.src)

    def sizes_of(self, packets: Ints, message: Ints) -> Array:
        """Wire sizes of packets, by their numbers over all messages and their messages."""
        if len(self.wire_bytes):
            return self.wire_bytes[packets].astype(np.int64)
        last = packets + 1 == self.packet_start[message + 1]
        return np.where(last, self.last_bytes[message], self.packet_bytes[message])

    def units_of(self, packets: Ints, message: Ints) -> Array:
        """Units of packets, by the same arguments."""
        return self.unit[packets] if len(self.unit) else self.flow[message]

    def message_bytes(self) -> Ints:
        """int64[M]: bytes on the wire of each message."""
        if len(self.wire_bytes):
            return np.add.reduceat(self.wire_bytes, self.packet_start[:-1], dtype=np.int64)
        return (self.packets - 1) * self.packet_bytes + self.last_bytes


class Link:
    """A link; strategies may read the fields up to `carried`, which are valid for the time up to
    which the driver has served the link. Two cache lines."""

    free: int
    """End of the current service; the link is busy at t if this is > t."""
    waiting_data: int
    """Bytes of waiting data, without the packet in service."""
    waiting_acks: int
    waiting_packets: int
    """Of both classes."""
    served: int
    """Bytes of the packet in service, or of the last packet served."""
    carried: int
    """Bytes whose service has started, in total."""
    wire_head: int
    """First packet on the wire."""
    wire_tail: int
    head_time: int
    """Arrival time of the first packet on the wire, NEVER for none."""
    data_head: int
    """Packets that wait, by class; -1 for none."""
    data_tail: int
    ack_head: int
    ack_tail: int
    rate: int
    """ps per byte, scaled by 2^20."""
    delay: int
    layer: int


LINK = layout(Link, CACHE_LINE)


@inlined
def queued_bytes(links: Records, link: Int, time: Int) -> Int:
    """Queue of a link in bytes: both classes, and all bytes of the packet in service."""
    waiting = links[link].waiting_data + links[link].waiting_acks
    return waiting + (links[link].served if links[link].free > time else 0)


@dataclass(frozen=True)
class EngineResult:
    """The result of a run; times in ps, -1 for events that did not happen."""

    started_ps: Ints
    """int64[M]: start of the service of the first packet of each message."""
    received_ps: Ints
    """int64[M]: arrival of the last packet."""
    completed_ps: Ints
    """int64[M]: arrival of the last ACK at the sender."""
    computed_ps: Ints
    """int64[C]: end of each computation."""
    link_bytes: Ints
    """int64[L], without gaps."""
    link_packets: Ints
    link_max_packets: Ints
    """int64[L]: largest queue, packet in service included."""
    link_max_bytes: Ints
    link_drops: Ints
    link_trims: Ints
    link_marks: Ints
    queue_histogram: Ints
    """int64[layers, bins]: queue in packets at each arrival of a packet, ACKs included; the last
    bin holds all longer queues."""
    no_route: int
    """Packets lost because a switch had no route to their host."""
    hops: int
    """Packets through queues of links, ACKs included."""
    arrived_ps: Ints | None = None
    """int64[packets]: first arrival of each data packet at its receiver; None if not requested."""
    arrived_flags: Bytes | None = None
    """uint8[packets]: MARKED, TRIMMED, AGAIN of this arrival, >> 56."""
    sent_ps: Ints | None = None
    """int64[packets]: start of the first service of each data packet; None if not requested."""
    loads: Ints | None = None
    """int64[intervals, L]: bytes that each link served in each interval of `load_bin_ps`; the bytes
    of a packet are spread over its service."""
    queues: Ints | None = None
    """int64[intervals, L]: longest queue in bytes that a waiting packet made in each interval, with
    the packet in service; 0 if none had to wait."""
    load_bin_ps: int = 0
    lost_on_links: int = 0
    """Packets lost on lossy or failed links."""
    sent_again: int = 0
    """Retransmitted data packets."""
    timeouts: int = 0
    out_of_time: bool = False
    """Whether it was ended at its time limit with events left."""
    failed_ps: Ints | None = None
    """int64[F]: when the sender of each flow gave up after its retries; None: not simulated."""
    pauses: PauseOutcome | None = None
    """None without PFC."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the strategy."""
    notes: tuple[str, ...] = ()
    switches: tuple[SwitchHash, ...] = ()
    """The hash of every switch that the strategy used."""

    @property
    def completion_ps(self) -> int | None:
        """Completion of the last message or computation; None if one did not complete."""
        ends = np.concatenate([self.completed_ps, self.computed_ps])
        if not len(ends) or (ends < 0).any():
            return None
        return int(ends.max())
