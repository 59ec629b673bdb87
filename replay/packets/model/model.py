"""The model that every driver of the packet-level replay simulates, and its conventions.

**Time** is int64 picoseconds from the start of the traffic. A packet of n bytes takes
`service_ps` = (n * ps_per_byte_q20 + 2**19) >> 20 on a link; exact wherever 8e12 / rate is whole.

**Links** are store and forward. A packet whose service starts at s keeps its link busy until
s + service(bytes + gap) and arrives at the next node, whole, at s + service(bytes) + delay.
A node hands an arrived packet to an output link at once. The host's NIC is its access link:
it serves ACKs like any other packet, and pulls a data packet whenever it is free for one.

**Two classes.** ACKs (and trimmed packets) strictly before data, without preemption.

**Ties.** At one node and instant: first messages are released, then the links that are free
start their next packet from what was queued before (departures before arrivals; ports of a host in
their order), then arrivals are handled in the order of the arriving links' numbers. After
every arrival the links are served again, so a packet that arrives at an idle link starts at
once, and the second of two simultaneous arrivals waits even if it is an ACK. A link that
becomes free at t counts as idle for an arrival at t.

**Queue** of a link at an instant: the packets waiting and the one in service. A data packet that
has to wait is dropped (or trimmed) when it, the data waiting and the packet in service exceed the
buffer; an ACK when the ACKs waiting would. ECN is decided at switches when the service of a data
packet starts, by the data waiting then with itself (probability 0 at `ecn_low_bytes` to 1 at
`ecn_high_bytes`, linear between).

**Hosts.** Messages of a flow (QP) are sent in order; the packets of captured ones not before
their times. The flows of a host with something to send
take turns packet by packet (round robin; a flow joins at the end when its message is released).
A packet's label is asked for when its service starts (data) or when it is queued (ACKs).
A receiver sends an ACK when a data packet has arrived and `ack_every` packets of its message are
unacknowledged, or its message is complete; over the port that the packet came by. A
message is complete when ACKs for all its packets are at the sender.

**Packets** are identified by one positive int64, `packet_key`: message, number within
the message, and flags. The number of a packet over all messages is
`workload.packet_start[message] + number`. An ACK has the key of the packet that triggered it, and
the flag ACK.

**Random numbers** are functions of what they are for (`engine/draws.py`), never of a stream: seed,
purpose, packet or pointer, draw. So both drivers and any number of threads see the same ones.

Model source: htsim as described in "Load Balancing for AI Training Workloads" (arXiv 2507.21372)
and docs/reproductions.md; where that is silent (ties, turns of flows) the choice is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Array, Bytes, Int, Int32s, Ints, inlined
from ...traffic.traffic import Traffic

PS = 1_000
"""Picoseconds of a nanosecond."""
NEVER = np.int64(1 << 62)
"""A time that does not come."""

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


@inlined
def packet_key(message: Int, number: Int) -> Int:
    """The key of a data packet; number < MOST_PACKETS."""
    return (np.int64(message) << np.int64(NUMBER_BITS)) | np.int64(number)


@inlined
def message_of(packet: Int) -> Int:
    """Message of a packet key, flags and all."""
    return (packet & np.int64(IDENTITY)) >> np.int64(NUMBER_BITS)


@inlined
def number_of(packet: Int) -> Int:
    """Number within the message, from 0."""
    return packet & np.int64(NUMBER_MASK)


@inlined
def service_ps(size: Int, ps_per_byte_q20: Int) -> Int:
    """Transmission time of this many bytes; it fits below 2**20 bytes at 1 Mb/s or more."""
    return (size * ps_per_byte_q20 + np.int64(1 << 19)) >> np.int64(20)


@dataclass(frozen=True)
class Model:
    """What packets and queues are like. Sizes are bytes on the wire, headers and all.

    Default overheads: 64 B header and ACK, no gap, which give 41.6 ns at 800 Gb/s (the reference
    tables of docs/reproductions.md). The paper itself has 62 B, 64 B and a gap of 20 B.
    """

    payload_bytes: int = 4096
    header_bytes: int = 64
    ack_bytes: int = 64
    gap_bytes: int = 0
    """Between packets on the wire; the link is busy, but arrival does not wait for it."""
    ack_every: int = 1
    buffer_bytes: int | None = None
    """Data per output queue, and as much for ACKs; None is lossless."""
    trim_bytes: int | None = None
    """Data that does not fit is cut to this and goes on among the ACKs; None drops it."""
    ecn_low_bytes: int | None = None
    ecn_high_bytes: int | None = None
    """Equal to ecn_low_bytes for a threshold; None for both: no marking."""

    def __post_init__(self) -> None:
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
        packet = self.payload_bytes + self.header_bytes
        if self.buffer_bytes is not None and self.buffer_bytes < packet:
            raise UsageError(f"a buffer of {self.buffer_bytes:,} B holds no packet of {packet:,} B")
        if (self.ecn_low_bytes is None) != (self.ecn_high_bytes is None):
            raise UsageError("ECN needs both its thresholds, low and high")
        if (self.ecn_low_bytes or 0) > (self.ecn_high_bytes or 0):
            raise UsageError("ECN's low threshold is above its high one")


LINE_RATE = 1 << 20


def pace_of(rate_share: float) -> int:
    """Time from one data packet to the next at a share of the line's rate, over the packet's
    service time, scaled by 2**20 (LINE_RATE)."""
    return round(LINE_RATE / rate_share)


"""Values of `Workload.on`."""


class Workload(NamedTuple):
    """What hosts send. F flows (QPs), M messages, sorted by flow and order within it."""

    src: Int32s
    """int32[F]: sending host."""
    dst: Int32s
    """int32[F]: receiving host."""
    flow: Int32s
    """int32[M]: flow of each message, ascending."""
    flow_start: Ints
    """int64[F + 1]: where the messages of each flow begin."""
    packets: Ints
    """int64[M], at least 1 each."""
    packet_start: Ints
    """int64[M + 1]: number over all messages of the first packet of each."""
    packet_bytes: Ints
    """int64[M]: wire size of all packets of a message but the last, at most 65,535."""
    last_bytes: Ints
    """int64[M]: wire size of the last packet."""
    release_ps: Ints
    """int64[M]: earliest time; after a predecessor or a barrier: time from there on."""
    after: Int32s
    """int32[M]: message that must be done first, -1 for none. `on` says at which end; it is the
    end at which this message is sent."""
    on: Bytes
    """uint8[M]: ON_ACKED (the predecessor has the same source) or ON_RECEIVED (its
    destination is this one's source)."""
    phase: Int32s
    """int32[M]: messages of phase p are released when all of the phases before are complete
    (barriers); from 0."""
    traffic: Traffic
    """2U units, for strategies that hash headers: unit f < F is the data of flow f, U + u are the
    ACKs of unit u. U is F but for flows of several entropy values."""
    due_ps: Ints = np.zeros(0, np.int64)
    """int64[P]: earliest time of every packet of messages without predecessors, by its number over
    all messages; empty when each message is released as a whole."""
    wire_bytes: Int32s = np.zeros(0, np.int32)
    """int32[P]: wire size of every packet, at most 65,535; empty when `packet_bytes` (else the
    largest of each message) and `last_bytes` tell."""
    unit: Int32s = np.zeros(0, np.int32)
    """int32[P]: unit of every packet, below U; empty when packets are of their flow's unit."""

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
        """Units of packets, by the same."""
        return self.unit[packets] if len(self.unit) else self.flow[message]

    def message_bytes(self) -> Ints:
        """int64[M]: bytes on the wire of each message."""
        if len(self.wire_bytes):
            return np.add.reduceat(self.wire_bytes, self.packet_start[:-1], dtype=np.int64)
        return (self.packets - 1) * self.packet_bytes + self.last_bytes


class LinkColumn:
    """Columns of the drivers' `links`, int64[links, LINK_COLUMNS], that strategies may read.

    They hold once the driver has brought the link up to the time in question.
    """

    FREE = 0
    """When its service ends; it is in service at t if this is > t."""
    WAITING_DATA = 1
    """Bytes of data that wait, without the packet in service."""
    WAITING_ACKS = 2
    WAITING_PACKETS = 3
    """Of both classes."""
    SERVED = 4
    """Bytes of the packet in service (or served last)."""
    CARRIED = 5
    """Bytes whose service has started, in total."""
    OWN = 6
    """From here on the driver's own."""


LINK_COLUMNS = 16
"""Two cache lines per link."""


@inlined
def queued_bytes(links: Ints, link: Int, time: Int) -> Int:
    """Queue of a link in bytes, both classes, with the whole packet in service."""
    waiting = links[link, 1] + links[link, 2]
    return waiting + (links[link, 4] if links[link, 0] > time else 0)


@dataclass(frozen=True)
class EngineResult:
    """What one run gave; times in ps, -1 where it did not happen."""

    started_ps: Ints
    """int64[M]: service of the first packet of each message began."""
    received_ps: Ints
    """int64[M]: its last packet arrived."""
    completed_ps: Ints
    """int64[M]: its last ACK arrived at the sender."""
    link_bytes: Ints
    """int64[L], gaps left out."""
    link_packets: Ints
    link_max_packets: Ints
    """int64[L]: largest queue, with the packet in service."""
    link_max_bytes: Ints
    link_drops: Ints
    link_trims: Ints
    link_marks: Ints
    queue_histogram: Ints
    """int64[layers, bins]: queue in packets that an arriving packet found before it, ACKs too; the
    last bin holds all above."""
    no_route: int
    """Packets lost because a switch had no way to their host."""
    hops: int
    """Packets through links' queues, ACKs too."""
    arrived_ps: Ints | None = None
    """int64[packets]: first arrival of every data packet at its receiver; None if not asked for."""
    arrived_flags: Bytes | None = None
    """uint8[packets]: MARKED, TRIMMED, AGAIN of that arrival, >> 56."""
    sent_ps: Ints | None = None
    """int64[packets]: begin of the first service of every data packet; None if not asked for."""
    loads: Ints | None = None
    """int64[stretches, L]: bytes that each link served in each stretch of `load_bin_ps`, a packet's
    spread over its service."""
    load_bin_ps: int = 0
    lost_on_links: int = 0
    """Packets lost on lossy or failed links."""
    sent_again: int = 0
    """Retransmitted data packets."""
    timeouts: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the strategy."""
    notes: tuple[str, ...] = ()

    @property
    def completion_ps(self) -> int | None:
        """Completion of the last message; None when one was not completed."""
        if not len(self.completed_ps) or (self.completed_ps < 0).any():
            return None
        return int(self.completed_ps.max())
