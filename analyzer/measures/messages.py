"""Messages: how long each takes, and the record of the latest, by which jobs are recognised.

A message is a SEND or WRITE (First to Last, or Only), a READ request with its
responses, or an atomic with its ACK; it belongs to the flow of the requester.
Only first copies of packets count, so a retransmitted message is one message.

- size: payload, for a READ the requested length, for an atomic 8 bytes
- duration: first to last packet of SENDs and WRITEs of more than one packet
- completion: first packet to the first response that covers its last PSN; for a READ
  to the last response by PSN, for an atomic to its ACK
- request to ACK: a packet with AckReq to the first ACK of the same PSN; not for retransmitted
packets (Karn's rule), nor for packets that a later ACK covers
- goodput: the payload of a flow that its receiver acknowledged, and the time that it took.

  - requests: payload of first copies up to the PSN that an ACK, a NAK or a response covers. An ACK
    for a part of the outstanding PSNs acknowledges the same part of the outstanding payload: exact
    when an ACK covers all of them, and for packets of one size; the payload that remains at the end
    is at most what was outstanding
  - READ responses: payload of first copies; they are the answer, and nothing acknowledges them
  - UC and UD: nothing, because they have no ACKs
  - time: first copy of the first packet to the last packet, retransmitted packets included, or to
    the last ACK that covers more than the ones before
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import numpy as np

from ...kernels.kernel import (
    Array,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    Record,
    RecordArray,
    Records,
    inlined,
    subkernel,
)
from ..results.flow import Latency, Messages
from ..statistics.histogram import HistogramPool, Histograms, observe
from ..statistics.per_flow import Kept, PerFlow, Pool, Tables
from ..statistics.per_flow import Rows as FlowRows
from ..track import batch as verdicts
from ..track.batch import (
    AHEAD,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    Rows,
    TrackedBatch,
)
from ..wire import bth
from ..wire.bth import psn_add, psn_distance, unwrapped
from ..wire.packets import ACK_REQUEST, HAS_AETH, HAS_RETH
from . import open_messages
from .open_messages import (
    ASSEMBLY_FIELDS,
    ENTRY,
    MOST_ENTRIES,
    PIECE,
    PIECES,
    WAITER_FIELDS,
    answered,
    begin,
    begin_message,
    continues,
    extend,
    forget_all,
    give_up_all,
    place,
    sent_again,
    set_aside,
    wait,
)

MESSAGE: Final = np.dtype(
    [
        ("begun_ns", np.int64),  # first packet
        ("ended_ns", np.int64),  # last packet, retransmitted ones included
        ("bytes", np.uint32),  # payload
        ("flow", np.int32),
        ("may_grant", np.uint8),  # 1: of the form of a grant of NCCL, see `decode/grants.py`
    ],
    align=True,
)
"""A SEND or WRITE at the first tap that sees its packets."""

MOST_MESSAGES: Final = 1 << 20
"""Records kept, 32 bytes each, once grants are seen."""
MOST_WITHOUT_GRANTS: Final = 1 << 15


class GrantNames(NamedTuple):
    """What all grants of a flow say alike; -1: they differ, or do not say it."""

    rank: int
    """Rank that shall send: that of the destination."""
    slot_bytes: int


class MessageLog:
    """Completed SENDs and WRITEs of all flows, in the order of completion."""

    def __init__(
        self,
        most: int = MOST_MESSAGES,
        most_without_grants: int = MOST_WITHOUT_GRANTS,
        newest: bool = False,
    ) -> None:
        """newest: beyond the limit, the oldest half leaves; else later messages are left out."""
        self._most, self._most_without_grants, self._newest = most, most_without_grants, newest
        self._parts: list[Records] = []
        self._count = 0
        self.grants: dict[int, GrantNames] = {}
        """By flow of the grants."""
        self.left_out = 0
        """Messages beyond the limit."""

    def add(self, messages: Records) -> None:
        """Take in MESSAGE records; they are copied."""
        most = self._most if self.grants else self._most_without_grants
        if self._newest:
            while self._parts and self._count + len(messages) > most:
                self.left_out += len(gone := self._parts.pop(0))
                self._count -= len(gone)
            messages, more = messages[-most:], max(0, len(messages) - most)
        else:
            room = max(0, most - self._count)
            messages, more = messages[:room], max(0, len(messages) - room)
        self.left_out += more
        if len(messages):
            self._parts.append(messages.copy())
            self._count += len(messages)

    def add_grants(self, flows: Int32s, grants: Records) -> None:
        """Take in GRANT_ROW records; flows: int32[grants]."""
        if not len(grants):
            return
        order = np.argsort(flows, kind="stable")
        numbers, first = np.unique(flows[order], return_index=True)
        ranks = _all_alike(grants["rank"][order], first)
        slots = _all_alike(grants["slot_bytes"][order], first)
        for flow, rank, slot in zip(numbers.tolist(), ranks, slots, strict=True):
            self._name(flow, GrantNames(rank, slot))

    def _name(self, flow: int, names: GrantNames) -> None:
        known = self.grants.setdefault(flow, names)
        if known != names:
            self.grants[flow] = GrantNames(
                *(ours if ours == theirs else -1 for ours, theirs in zip(known, names, strict=True))
            )

    def messages(self) -> Records:
        """MESSAGE records by flow, then by their first packet."""
        messages = np.concatenate([np.zeros(0, MESSAGE), *self._parts])
        return messages[np.lexsort((messages["begun_ns"], messages["flow"]))]

    def keep(self, kept: Kept) -> None:
        """Only the messages of these flows stay."""
        parts = [part[kept.holds(part["flow"])] for part in self._parts]
        for part in parts:
            part["flow"] = kept.number[part["flow"]]
        self._parts, self._count = parts, sum(map(len, parts))
        self.grants = {
            int(kept.number[flow]): names
            for flow, names in self.grants.items()
            if kept.number[flow] >= 0
        }

    def merge(self, other: MessageLog, flow_map: Int32s) -> None:
        """Take in the messages of another log; its flow i is our flow `flow_map[i]`."""
        self.left_out += other.left_out
        for part in other._parts:
            renumbered = part.copy()
            renumbered["flow"] = flow_map[part["flow"]]
            self.add(renumbered)
        for flow, names in other.grants.items():
            self._name(int(flow_map[flow]), names)


def _all_alike(values: Array, first: Ints) -> list[int]:
    """The value of each group of rows that begins at `first`; -1 where they differ."""
    least, most = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    alike: list[int] = np.where(least == most, least, -1).tolist()
    return alike


DELIVERED_FIELDS = [
    ("delivered", np.int64),  # bytes acknowledged, or of responses
    ("pending", np.int64),  # bytes of first copies that wait for an ACK
    ("base", np.uint32),  # PSN up to which all is acknowledged; at first the one before the first
    ("top", np.uint32),  # largest PSN of a request
    ("first_time", np.int64),  # ns
    ("last_time", np.int64),
    ("started", np.uint8),  # 1: the times are set
    ("asked", np.uint8),  # 1: a request was seen, `base` and `top` are set
    ("acked", np.uint8),  # 1: an answer was seen
    ("began_anew", np.uint8),  # 1: without an answer the sender went back to its first request
]
"""Fields of a flow's state for the functions below."""


@inlined
def _pass(s: Record, time: Int) -> None:
    if s.started == 0:
        s.started = 1
        s.first_time = time
        s.last_time = time
    s.first_time = min(np.int64(s.first_time), time)
    s.last_time = max(np.int64(s.last_time), time)


@inlined
def arrived(s: Record, payload: Int, time: Int) -> None:
    """A response passes for the first time."""
    _pass(s, time)
    s.delivered += payload


@inlined
def offered(s: Record, psn: Int, payload: Int, time: Int) -> None:
    """A request of a reliable transport passes for the first time."""
    _pass(s, time)
    s.began_anew = 0
    if s.asked == 0:
        s.asked = 1
        s.base = psn_add(psn, -1)
        s.top = psn
    ahead = psn_distance(psn, np.int64(s.base))
    if ahead <= 0 and s.acked:
        s.delivered += payload
        return
    if ahead <= 0:
        s.base = psn_add(psn, -1)
    if psn_distance(psn, np.int64(s.top)) > 0:
        s.top = psn
    s.pending += payload


@inlined
def resent(s: Record, psn: Int, time: Int, is_request: bool) -> None:
    """A packet passes again."""
    if s.started:
        s.last_time = max(np.int64(s.last_time), time)
    if is_request and s.asked and s.acked == 0 and psn == psn_add(np.int64(s.base), 1):
        s.began_anew = 1


@inlined
def acknowledged(s: Record, psn: Int, time: Int) -> None:
    """An answer covers all requests up to `psn`."""
    if s.asked == 0:
        return
    s.acked = 1
    covers = psn_distance(psn, np.int64(s.base))
    if covers <= 0:
        return
    s.last_time = max(np.int64(s.last_time), time)
    outstanding = psn_distance(np.int64(s.top), np.int64(s.base))
    part = np.int64(s.pending)
    if covers < outstanding:
        part = part * covers // outstanding
    s.delivered += part
    s.pending -= part
    s.base = psn


@inlined
def began_again(s: Record) -> None:
    """The sequence restarts: what was outstanding is never acknowledged."""
    s.pending = 0
    s.acked = 0
    s.asked = 0


STATE = np.dtype(
    [
        ("messages", np.int64),
        ("seen", np.uint8),  # 1: a packet of this flow was measured
        ("answered", np.uint8),  # 1: a response to this flow was seen
        *ASSEMBLY_FIELDS,
        *WAITER_FIELDS,
        *DELIVERED_FIELDS,
    ],
    align=True,
)


class MessageArrays(NamedTuple):
    """Arrays of the kernel."""

    state: RecordArray
    """STATE[flows]."""
    current: RecordArray
    """PIECE[flows]: the growing piece."""
    shelves: RecordArray
    """PIECE[flows, PIECES]: of flows with disorder, allocated on first use."""
    rings: RecordArray
    """ENTRY[flows * MOST_ENTRIES]: rings of flows with outstanding requests, see `awaiting`."""
    used: Ints
    """int64[3]: shelves, and entries of rings, that were handed out; records of `log`."""
    log: RecordArray
    """MESSAGE[rows of a batch, or 0]: messages that the batch completes; without room none is
    logged."""


@subkernel
def close(arrays: MessageArrays, f: Int) -> None:
    """The sequence restarted or ended: open messages stay incomplete or unacknowledged."""
    s = arrays.state[f]
    give_up_all(arrays.shelves, s, arrays.current[f])
    forget_all(arrays.rings, s)


def empty(flows: int) -> MessageArrays:
    """Arrays for this many flows without packets."""
    return MessageArrays(
        np.zeros(flows, STATE),
        np.zeros(flows, PIECE),
        np.zeros((flows, PIECES), PIECE),
        np.zeros(flows * MOST_ENTRIES, ENTRY),
        np.zeros(3, np.int64),
        np.zeros(0, MESSAGE),
    )


def copied(arrays: MessageArrays, flow: int) -> MessageArrays:
    """One flow as flow, shelf and ring 0 of new arrays; empty for an unseen flow."""
    part = empty(1)
    if flow >= len(arrays.state):
        return part
    part.state[0] = arrays.state[flow]
    part.current[0] = arrays.current[flow]
    s = part.state[0]
    if s["shelf"]:
        part.shelves[0] = arrays.shelves[s["shelf"] - 1]
        s["shelf"] = 1
    if s["ring"]:
        size = 1 << int(s["ring_bits"])
        part.rings[:size] = arrays.rings[s["ring"] - 1 : s["ring"] - 1 + size]
        s["ring"] = 1
    return part


_NEW: Final = sum(1 << v for v in (IN_ORDER, AHEAD, REORDERED, RECOVERED, RESTARTED))
_RELIABLE: Final = 0x8000  # its requests are acknowledged
_CLASS: Final = bth.OPCODE_CLASS | np.where(
    np.isin(bth.TRANSPORT_OF, (bth.RC, bth.RD, bth.XRC, bth.MRC)), _RELIABLE, 0
).astype(np.uint16)
_ATOMIC_BYTES: Final = 8
_WRITE_ONLY: Final = 0x0A  # of RC
_LOGGED: Final = 2
"""Item of `used` that counts the records of `log`."""


@subkernel
def _update(arrays: MessageArrays, histograms: Histograms, rows: Rows) -> None:
    for i in range(len(rows.flow)):
        bits = np.int64(_CLASS[rows.opcode[i]])
        if bits & bth.ACKNOWLEDGE:
            if rows.verdict[i] == NOT_SEQUENCED and rows.decode_flags[i] & HAS_AETH:
                f = np.int64(rows.peer[rows.flow[i]])
                if 0 <= f < len(rows.peer):
                    _acknowledge(
                        arrays,
                        histograms,
                        f,
                        np.int64(rows.subject_psn[i]),
                        np.int64(rows.aeth[i]),
                        rows.time_ns[i],
                    )
            continue
        if bits & (bth.REQUEST | bth.RESPONSE_DATA) == 0:
            continue
        f = np.int64(rows.flow[i])
        s = arrays.state[f]
        v = np.int64(rows.verdict[i])
        number = np.int64(rows.subject_psn[i])
        if v == RETRANSMITTED:
            resent(s, number, rows.time_ns[i], bits & bth.REQUEST != 0)
            if bits & bth.REQUEST:
                sent_again(arrays.rings, s, number)
        if not (1 << v) & _NEW and (bits & bth.SEQUENCED or v != NOT_SEQUENCED):
            continue
        s.seen = 1
        time = rows.time_ns[i]
        payload = np.int64(rows.payload_bytes[i])
        if bits & bth.REQUEST == 0:
            arrived(s, payload, time)
            f = np.int64(rows.peer[f])
            if 0 <= f < len(rows.peer):
                arrays.state[f].answered = 1
                acknowledged(arrays.state[f], number, time)
                answered(
                    arrays.rings,
                    histograms,
                    arrays.state[f],
                    f,
                    number,
                    True,
                    bits & bth.BEGINS != 0,
                    bits & bth.ENDS != 0,
                    v != RECOVERED,
                    time,
                )
            continue
        watched = bits & _RELIABLE != 0 and rows.peer[f] >= 0
        wants = (open_messages.WATCHED if watched else 0) | (
            open_messages.ACK
            if bits & _RELIABLE and rows.bth_flags[i] & ACK_REQUEST and v != RECOVERED
            else 0
        )
        if v == RESTARTED:
            close(arrays, f)
            began_again(s)
        if bits & _RELIABLE:
            offered(s, number, payload, time)
        if watched and bits & bth.BEGINS:
            begin_message(s)
        if bits & (bth.READ_REQUEST | bth.ATOMIC):
            s.messages += 1
            if bits & bth.ATOMIC:
                observe(histograms, f, open_messages.SIZE, _ATOMIC_BYTES)
            elif rows.decode_flags[i] & HAS_RETH:
                observe(histograms, f, open_messages.SIZE, np.int64(rows.dma_length[i]))
            if bits & bth.READ_REQUEST and v != RECOVERED:
                wants |= open_messages.FIRST_RESPONSE
            wants = (
                wants & ~open_messages.ACK | open_messages.COMPLETION | open_messages.LAST_RESPONSE
            )
            wait(arrays.rings, arrays.used, s, number, wants, time, time)
            continue
        if bits & bth.BEGINS and bits & bth.ENDS:
            s.messages += 1
            observe(histograms, f, open_messages.SIZE, payload)
            _note(arrays, f, payload, time, time, _may_grant(np.int64(rows.opcode[i]), payload))
            if bits & _RELIABLE:
                wants |= open_messages.COMPLETION
                wait(arrays.rings, arrays.used, s, number, wants, time, time)
            continue
        _assemble(arrays, histograms, s, f, bits, number, payload, time, wants)


@inlined
def _acknowledge(
    arrays: MessageArrays, histograms: Histograms, f: Int, number: Int, aeth: Int, time: Int
) -> None:
    """An ACK covers its PSN; a NAK or RNR NAK names the first PSN it does not cover."""
    s = arrays.state[f]
    kind = (aeth >> 24) & bth.SYNDROME_KIND_MASK
    if kind == bth.SYNDROME_ACK:
        s.answered = 1
        acknowledged(s, number, time)
        answered(arrays.rings, histograms, s, f, number, False, False, False, True, time)
    elif kind == bth.SYNDROME_NAK or kind == bth.SYNDROME_RNR_NAK:
        s.answered = 1
        number = psn_add(number, -1)
        acknowledged(s, number, time)
        answered(arrays.rings, histograms, s, f, number, False, False, False, False, time)


@inlined
def _may_grant(opcode: Int, payload: Int) -> bool:
    """Whether a message of one packet has the form of a grant of NCCL, see `decode/grants.py`: an
    RDMA WRITE without immediate of one entry of 32 or 64 bytes, or of up to 8."""
    return bool(opcode == _WRITE_ONLY and payload % 32 == 0 and 32 <= payload <= 512)


@inlined
def _note(
    arrays: MessageArrays, f: Int, payload: Int, begun: Int, ended: Int, may_grant: bool
) -> None:
    """Log a completed message."""
    at = arrays.used[_LOGGED]
    if at == len(arrays.log):
        return
    record = arrays.log[at]
    record.begun_ns = begun
    record.ended_ns = ended
    record.bytes = min(payload, np.int64(0xFFFFFFFF))
    record.flow = f
    record.may_grant = may_grant
    arrays.used[_LOGGED] = at + 1


@inlined
def _assemble(
    arrays: MessageArrays,
    histograms: Histograms,
    s: Record,
    f: Int,
    bits: Int,
    number: Int,
    payload: Int,
    time: Int,
    wants: Int,
) -> None:
    """A packet of a SEND or WRITE of several packets."""
    c = arrays.current[f]
    begins, ends = bits & bth.BEGINS != 0, bits & bth.ENDS != 0
    if continues(arrays.shelves, s, c, number, begins):
        if begins:
            begin(c, number, True, payload, time, wants & open_messages.WATCHED != 0)
        else:
            extend(c, number, payload, time)
            c.last = ends
    else:
        place(
            arrays.shelves,
            arrays.used,
            s,
            c,
            number,
            begins,
            ends,
            payload,
            time,
            wants & open_messages.WATCHED != 0,
        )
    wants &= open_messages.ACK
    if wants:
        wait(arrays.rings, arrays.used, s, number, wants, time, time)
    if c.last:
        if c.first:
            c.open = 0
            s.messages += 1
            observe(histograms, f, open_messages.SIZE, c.bytes)
            observe(histograms, f, open_messages.DURATION, c.ended - c.begun)
            _note(arrays, f, c.bytes, c.begun, c.ended, False)
            if bits & _RELIABLE:
                wants = open_messages.COMPLETION | (open_messages.WATCHED if c.watched else 0)
                last = psn_add(np.int64(c.next), -1)
                wait(arrays.rings, arrays.used, s, last, wants, c.ended, c.begun)
        else:
            set_aside(arrays.shelves, arrays.used, s, c)


class MessageStatistics(PerFlow[MessageArrays]):
    """Messages, latencies and goodput of all flows."""

    layout: ClassVar = {
        "state": FlowRows(),
        "current": FlowRows(),
        "shelves": Pool(("state", "shelf"), used=0),
        "rings": Tables(
            "state", "ring", "ring_bits", used=1, base=1, records_each=open_messages.MOST_ENTRIES
        ),
    }

    def __init__(self) -> None:
        super().__init__(empty(0))
        self._histograms = HistogramPool(open_messages.KINDS)
        self.log: MessageLog | None = None
        """Set where training jobs are asked for."""

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches must come in capture order."""
        self.grow(batch.n_flows)
        if self.log is not None and len(self.arrays.log) < len(batch):
            self.arrays = self.arrays._replace(log=np.zeros(len(batch), MESSAGE))
        self.arrays.used[_LOGGED] = 0
        _update(self.arrays, self._histograms.arrays, batch.rows)
        if self.log is not None:
            self.log.add(self.arrays.log[: self.arrays.used[_LOGGED]])
            if (grants := batch.table.grants) is not None:
                self.log.add_grants(batch.flow[grants["row"]], grants)

    def open_ns(self) -> dict[int, int]:
        """By flow: time of the last packet of the message that it sends, if it is not complete."""
        growing = self.arrays.current[: self.known_flows]
        flows = np.flatnonzero(growing["open"])
        return dict(zip(flows.tolist(), growing["ended"][flows].tolist(), strict=True))

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        super().keep(kept)
        if self.log is not None:
            self.log.keep(kept)

    def merge(self, other: Self, flow_map: Int32s) -> None:
        """Take the flows of another measure; see `PerFlow.merge`."""
        super().merge(other, flow_map)
        if self.log is not None and other.log is not None:
            self.log.merge(other.log, flow_map)

    def messages(self, flow: int) -> Messages:
        """Statistics of one flow's messages as if the capture ended here.

        `incomplete` is the maximum of the messages without an end and those without a start: a
        message with a hole in the middle is both. `max_outstanding` is None when no response to the
        flow was seen.
        """
        part = copied(self.arrays, flow)
        s = part.state[0]
        maximum = int(s["max_outstanding"]) if s["answered"] and s["max_outstanding"] else None
        close(part, 0)
        return Messages(
            count=int(s["messages"]),
            incomplete=max(int(s["begun"]), int(s["ended"])),
            size_bytes=self._histograms.quantiles(flow, open_messages.SIZE),
            duration_ns=self._histograms.quantiles(flow, open_messages.DURATION),
            completion_ns=self._histograms.quantiles(flow, open_messages.COMPLETED),
            max_outstanding=maximum,
        )

    def latency(self, flow: int) -> Latency:
        """Times from one flow's requests to their responses."""
        return Latency(
            request_to_ack_ns=self._histograms.quantiles(flow, open_messages.ACKED),
            read_to_first_response_ns=self._histograms.quantiles(flow, open_messages.RESPONDED),
        )

    def untracked(self, flow: int) -> int:
        """Messages with an unknown completion time because too many were outstanding."""
        return int(self._state(flow)["untracked"])

    def goodput_bits_per_second(self, flow: int) -> float | None:
        """Acknowledged payload divided by the time of the flow's data and ACKs (`delivered`).

        None without such payload or time, and where it is unknown (`unacknowledged`).
        """
        s = self._state(flow)
        duration = int(s["last_time"]) - int(s["first_time"])
        payload = int(s["delivered"])
        if duration <= 0 or payload + int(s["pending"]) == 0 or self.unacknowledged(flow):
            return None
        return payload * 8e9 / duration

    def unacknowledged(self, flow: int) -> bool:
        """True where the capture holds requests with payload and does not show whether they were
        acknowledged: no answer, and no retransmission of the first request."""
        s = self._state(flow)
        return bool(s["pending"]) and not (s["acked"] or s["began_anew"])

    def _state(self, flow: int) -> Any:
        """The STATE record of a flow; empty for an unseen flow."""
        known = self.arrays.state
        return known[flow] if flow < len(known) else empty(1).state[0]


MOST_ENDS = 1 << 21
"""First and last packets that are kept, 24 bytes each."""

_FIRST_COPIES: Final = (
    verdicts.IN_ORDER,
    verdicts.AHEAD,
    verdicts.REORDERED,
    verdicts.RECOVERED,
    verdicts.RESTARTED,
)
_EDGES: Final = bth.BEGINS | bth.ENDS
_END = np.dtype(
    [("time_ns", "i8"), ("flow", "i4"), ("psn", "u4"), ("begins", "u1"), ("ends", "u1")]
)
TIMED = np.dtype([("flow", "i4"), ("begun_ns", "i8"), ("ended_ns", "i8")])
"""One message. A message whose last packet was not seen ends with its first one."""


class MessageTimes:
    """Times at the first tap that sees a packet; off unless ranks are asked for."""

    def __init__(self, most: int = MOST_ENDS, newest: bool = False) -> None:
        """newest: beyond `most`, the oldest leave in place of the newest."""
        self._most, self._newest = most, newest
        self._parts: list[RecordArray] = []
        self._count = 0
        self.full = False
        """Later messages are not known."""

    def update(self, batch: TrackedBatch) -> None:
        """Take the first and last packets of messages of a batch."""
        bits = bth.OPCODE_CLASS[batch.table.opcode]
        edge = (bits & bth.REQUEST != 0) & (bits & _EDGES != 0)
        rows = np.flatnonzero(edge & np.isin(batch.verdict, _FIRST_COPIES))
        if self._newest:
            rows = rows[-self._most :]
        while self._newest and self._parts and self._count + len(rows) > self._most:
            self._count -= len(self._parts.pop(0))
        if self._count + len(rows) > self._most:
            self.full = True
        if self.full or not len(rows):
            return
        part = np.zeros(len(rows), _END)
        part["time_ns"], part["flow"] = batch.table.time_ns[rows], batch.flow[rows]
        part["psn"] = batch.table.psn[rows]
        part["begins"] = bits[rows] & bth.BEGINS != 0
        part["ends"] = bits[rows] & bth.ENDS != 0
        self._parts.append(part)
        self._count += len(rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        parts = []
        for part in self._parts:
            part = part[kept.holds(part["flow"])]
            part["flow"] = kept.number[part["flow"]]
            parts.append(part)
        self._parts = parts
        self._count = sum(map(len, parts))

    def messages(self) -> RecordArray:
        """TIMED records, by flow, then in the order of PSNs."""
        ends = np.concatenate([np.zeros(0, _END), *self._parts])
        by_flow = np.argsort(ends["flow"], kind="stable")
        ends = ends[by_flow]
        ends = ends[np.lexsort((unwrapped(ends["psn"]), ends["flow"]))]
        first = np.flatnonzero(ends["begins"])
        messages = np.zeros(len(first), TIMED)
        messages["flow"] = ends["flow"][first]
        messages["begun_ns"] = messages["ended_ns"] = ends["time_ns"][first]
        after = first + 1  # of several packets: the last one follows the first one by PSN
        follows = after < len(ends)
        near = ends[np.minimum(after, max(0, len(ends) - 1))] if len(ends) else ends
        closed = follows & (near["begins"] == 0) & (near["flow"] == messages["flow"])
        closed &= ends["ends"][first] == 0
        messages["ended_ns"][closed] = np.maximum(near["time_ns"], messages["begun_ns"])[closed]
        return messages
