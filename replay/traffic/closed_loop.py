"""Which event each captured message waited for, inferred from the capture alone.

- The data of a READ waits until its request is received, if the request was captured.

Per queue pair, in this order:

- *ping-pong*: the messages of the two directions take turns in a repeating pattern, and no message
  begins before the messages of the other side have ended. Then each message waits until the last
  message of the other side is received.
- *window*: at most k messages were outstanding at once. Then each message waits until the message
  k before it is acknowledged (READ: its data received). The data of READs without captured
  requests has the window of the requesting side.
- Otherwise the dependency is unknown, and messages wait only for the order of the queue pair.

Where `linked` finds evidence, a message waits for a message of another queue pair of its host in
place of its own queue pair's.

Only packets of messages count: NAKs and CNPs are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ...analyzer.measures.messages import MessageStatistics
from ...analyzer.statistics.per_flow import longer
from ...analyzer.track import batch as verdicts
from ...analyzer.track.batch import Rows, TrackedBatch
from ...analyzer.wire import bth
from ...analyzer.wire.bth import opcode_name
from ...kernels.kernel import Bytes, Int, Int32s, Ints, Records, subkernel
from .traffic import (
    MOST_SOURCES,
    NO_LINKS,
    ON_ACKED,
    ON_RECEIVED,
    AckTimes,
    Links,
    PacketTimes,
    SentMessages,
    Told,
    linked,
)

MOST_LOGGED = 1 << 22
"""Messages kept, about 50 bytes each."""
MOST_PACKETS_LOGGED = 1 << 24
"""Packets kept, 20 bytes each."""

REQUESTS, RESPONSES, ASKS = 0, 1, 2
"""Kinds of messages: a SEND, WRITE or atomic; the data of a READ; the request of a READ."""
KINDS = 3

LOGGED = np.dtype(
    [
        ("flow", "i4"),
        ("kind", "i4"),
        ("packets", "i8"),
        ("payload_bytes", "i8"),
        ("wire_bytes", "i8"),
        ("begun_ns", "i8"),
        ("ended_ns", "i8"),
        ("last_psn", "i8"),
    ]
)
"""One message; begun and ended: times of the first and last packet. last_psn: of its Last or Only
packet, else of its first one."""

PACKET = np.dtype([("message", "i4"), ("unit", "i4"), ("time_ns", "i8"), ("wire_bytes", "i4")])
"""One packet of a logged message; unit: its flow and entropy value (`unit_counts`)."""

_ORDERED: Final = 1 << verdicts.IN_ORDER | 1 << verdicts.AHEAD | 1 << verdicts.REORDERED
_NEW: Final = _ORDERED | 1 << verdicts.RECOVERED | 1 << verdicts.RESTARTED
_AGAIN: Final = 1 << verdicts.RETRANSMITTED | 1 << verdicts.DUPLICATE
_COPIES: Final = 1 << verdicts.TAP_COPY | 1 << verdicts.MIRROR_DUPLICATE | 1 << verdicts.DUPLICATE

_MESSAGES, _PACKETS, _FEEDBACK, _SENT_AGAIN = range(4)


def _kind(opcode: int) -> int:
    """-1 for packets that the transport of the peer generates: ACKs, NAKs, CNPs, probes."""
    bits = int(bth.OPCODE_CLASS[opcode])
    if "READ_RESPONSE" in opcode_name(opcode):
        return RESPONSES
    if bits & bth.READ_REQUEST:
        return ASKS
    return REQUESTS if bits & bth.REQUEST else -1


_KIND: Final = np.array([_kind(opcode) for opcode in range(256)], np.int8)


class MessageLog:
    """Messages and their packets, without retransmissions.

    A late packet counts for the current message of its flow.
    """

    def __init__(self, most: int = MOST_LOGGED, most_packets: int = MOST_PACKETS_LOGGED) -> None:
        self._most, self._most_packets = most, most_packets
        self._log = np.zeros(min(1024, most), LOGGED)
        self._packets = np.zeros(min(1024, most_packets), PACKET)
        self._open = np.full(0, -1, np.int64)
        self._used = np.zeros(4, np.int64)
        self.full = False
        """There were more than `most` messages; the log is then invalid."""

    @property
    def messages(self) -> Records:
        """LOGGED records in the order of their begins, a view."""
        return self._log[: int(self._used[_MESSAGES])]

    @property
    def packets(self) -> Records | None:
        """PACKET records in capture order, a view; None if there were too many."""
        if self._most_packets == 0:
            return None
        return self._packets[: int(self._used[_PACKETS])]

    @property
    def feedback_packets(self) -> int:
        """Packets that are not part of a message."""
        return int(self._used[_FEEDBACK])

    @property
    def sent_again(self) -> int:
        """Retransmitted packets of messages."""
        return int(self._used[_SENT_AGAIN])

    def update(self, batch: TrackedBatch, unit: Int32s) -> None:
        """Log a batch; batches must be in capture order. unit: of each row."""
        if KINDS * batch.n_flows > len(self._open):
            more = np.full(2 * KINDS * batch.n_flows - len(self._open), -1, np.int64)
            self._open = np.concatenate([self._open, more])
        row: Int = 0
        while row < len(batch) and not self.full:
            row = _log_rows(batch.rows, unit, row, self._open, self._log, self._packets, self._used)
            if row < len(batch):
                self._make_room()

    def _make_room(self) -> None:
        if self._used[_MESSAGES] >= len(self._log):
            self.full = len(self._log) >= self._most
            if not self.full:
                self._log = longer(self._log, min(2 * len(self._log), self._most))
        if len(self._packets) and self._used[_PACKETS] >= len(self._packets):
            if len(self._packets) >= self._most_packets:
                self._most_packets = 0
                self._packets = np.zeros(0, PACKET)
            else:
                room = min(2 * len(self._packets), self._most_packets)
                self._packets = longer(self._packets, room)


@subkernel
def _log_rows(
    rows: Rows, unit: Int32s, row: Int, open_: Ints, log: Records, packets: Records, used: Ints
) -> Int:
    """Log rows from `row` on; returns the first row without room.

    len(open_) >= KINDS * flows of the tracker. No packets are logged if `packets` is empty.
    """
    while row < len(rows.flow):
        kind = np.int64(_KIND[rows.opcode[row]])
        bits = np.int64(bth.OPCODE_CLASS[rows.opcode[row]])
        seen = np.int64(1) << np.int64(rows.verdict[row])
        unordered = bits & bth.SEQUENCED == 0 and rows.verdict[row] == verdicts.NOT_SEQUENCED
        if kind < 0 or not (seen & _NEW or unordered):
            if kind < 0 and not seen & _COPIES:
                used[_FEEDBACK] += 1
            elif kind >= 0 and seen & _AGAIN:
                used[_SENT_AGAIN] += 1
            row += 1
            continue
        stream = np.int64(rows.flow[row]) * KINDS + kind
        time = rows.time_ns[row]
        if len(packets) and used[_PACKETS] >= len(packets):
            return row
        if open_[stream] < 0 or bits & bth.BEGINS:
            if used[_MESSAGES] >= len(log):
                return row
            open_[stream] = used[_MESSAGES]
            begun = log[used[_MESSAGES]]
            used[_MESSAGES] += 1
            begun.flow = rows.flow[row]
            begun.kind = kind
            begun.begun_ns = time
            begun.ended_ns = time
            begun.last_psn = np.int64(rows.psn[row])
        message = log[open_[stream]]
        message.packets += 1
        message.payload_bytes += np.int64(rows.payload_bytes[row])
        message.wire_bytes += np.int64(rows.wire_bytes[row])
        message.ended_ns = max(message.ended_ns, time)
        if bits & bth.ENDS:
            message.last_psn = np.int64(rows.psn[row])
        if len(packets):
            packet = packets[used[_PACKETS]]
            used[_PACKETS] += 1
            packet.message = open_[stream]
            packet.unit = unit[row]
            packet.time_ns = time
            packet.wire_bytes = np.int64(rows.wire_bytes[row])
        row += 1
    return row


LEAST_TURNS = 8
"""Required repetitions of the pattern: two independent sides with 8 messages each alternate
strictly by chance in one of 6,435 orders (2 of C(16, 8))."""
LONGEST_PATTERN = 16
"""Messages; rping sends 7 for a READ and a WRITE."""


class Ends(NamedTuple):
    """What links between queue pairs are inferred from."""

    src: Int32s
    """Address by flow."""
    dst: Int32s
    acks: AckTimes


@dataclass
class _Told:
    """Numbers of queue pairs by kind of dependency."""

    ping_pong: int = 0
    windows: list[int] = field(default_factory=list)
    unknown: int = 0


def sent_messages(
    log: MessageLog,
    statistics: MessageStatistics,
    peer: Int32s,
    ends: Ends | None = None,
) -> SentMessages | None:
    """The messages of flows and their dependencies; None if there were too many messages.

    peer: int32[flows], the other flow of the connection or -1. `SentMessages.flow` are indices of
    these flows. ends: without it no links to other queue pairs are inferred.
    """
    if log.full:
        return None
    records = log.messages
    stream = records["flow"].astype(np.int64) * 2 + (records["kind"] == RESPONSES)
    order = np.argsort(stream, kind="stable")
    records = records[order]
    counts = _Told()
    after, on = _waits(records, statistics, peer, counts)
    links, evidence, idle_ns = NO_LINKS, Told(), np.zeros(0, np.int64)
    if ends is not None:
        acked = _acked(records, peer, ends)
        links, evidence = _links(records, acked, peer, ends)
        after[links.message] = -1  # a window is then what the arrivals left of it
        idle_ns = _idle_ns(records, after, on, acked)
    return SentMessages(
        flow=records["flow"].copy(),
        responses=records["kind"] == RESPONSES,
        packets=records["packets"].copy(),
        payload_bytes=records["payload_bytes"].copy(),
        wire_bytes=records["wire_bytes"].copy(),
        begun_ns=records["begun_ns"].copy(),
        ended_ns=records["ended_ns"].copy(),
        after=after,
        on=on,
        times=_times(log, order),
        notes=(*_notes(len(records), counts), *_link_notes(evidence)),
        left_out=_left_out(log),
        links=links,
        evidence=evidence,
        idle_ns=idle_ns,
    )


def _acked(records: Records, peer: Int32s, ends: Ends) -> Ints:
    """int64[messages]: first ACK of each SEND and WRITE; -1: not seen, or another kind."""
    acked = np.full(len(records), -1, np.int64)
    rows = np.flatnonzero(records["kind"] == REQUESTS)
    requests = records[rows]
    acked[rows] = ends.acks.of(requests["flow"].astype(np.int32), requests["last_psn"], peer)
    return acked


def _idle_ns(records: Records, after: Int32s, on: Bytes, acked: Ints) -> Ints:
    """`SentMessages.idle_ns`; 0 without a predecessor. A message whose ACK was not seen ends with
    its last packet."""
    ended = records["ended_ns"].astype(np.int64)
    complete = np.where((on == ON_ACKED) & (acked[after] >= 0), acked[after], ended[after])
    stream = records["flow"].astype(np.int64) * 2 + (records["kind"] == RESPONSES)
    follows = np.append(False, stream[1:] == stream[:-1])
    free = np.maximum(complete, np.where(follows, np.roll(ended, 1), 0))
    return np.where(after >= 0, np.maximum(0, records["begun_ns"] - free), 0).astype(np.int64)


def _links(records: Records, acked: Ints, peer: Int32s, ends: Ends) -> tuple[Links, Told]:
    """Links between SENDs and WRITEs."""
    rows = np.flatnonzero(records["kind"] == REQUESTS)
    requests = records[rows]
    flow = requests["flow"].astype(np.int32)
    links, evidence = linked(
        flow, requests["begun_ns"], requests["ended_ns"], acked[rows], ends.src, ends.dst, peer
    )
    row: Int32s = rows.astype(np.int32)
    return Links(row[links.message], row[links.after], links.gap_ns), evidence


def _link_notes(evidence: Told) -> tuple[str, ...]:
    notes = []
    if evidence.flows:
        notes.append(
            f"{evidence.flows:,} queue pairs wait for other queue pairs of their host: "
            f"{evidence.fixed:,} of {evidence.of:,} messages leave a fixed time after a message "
            "arrives"
        )
    if evidence.not_compared:
        notes.append(
            f"{evidence.not_compared:,} pairs of queue pairs were not compared: whether "
            f"one waits for the other is unknown; each is compared with {MOST_SOURCES} that end at "
            "its host"
        )
    return tuple(notes)


def _times(log: MessageLog, order: Ints) -> PacketTimes | None:
    packets = log.packets
    if packets is None:
        return None
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    rows = np.argsort(place[packets["message"]], kind="stable")
    return PacketTimes(*(packets[name][rows] for name in ("unit", "time_ns", "wire_bytes")))


def _waits(
    records: Records, statistics: MessageStatistics, peer: Int32s, counts: _Told
) -> tuple[Int32s, Bytes]:
    """(after, on) of messages sorted by flow."""
    after = np.full(len(records), -1, np.int32)
    on = np.full(len(records), ON_ACKED, np.uint8)
    flows, starts = np.unique(records["flow"], return_index=True)
    rows = dict(zip(flows.tolist(), np.split(np.arange(len(records)), starts[1:]), strict=False))
    none = np.zeros(0, np.int64)
    done: set[int] = set()
    for flow, rows_of_flow in rows.items():
        if flow in done:
            continue
        other = int(peer[flow])
        if not (other in rows and int(peer[other]) == flow):
            windows = {flow: _window(statistics, flow)}
            _window_waits(records, rows_of_flow, none, windows[flow], after, on, counts)
            asking = None if other < 0 else _window(statistics, other)
            _data_of_reads(records, rows_of_flow, asking, after, counts)
            continue
        done.add(other)
        sides = rows_of_flow, rows[other]
        windows = {at: _window(statistics, at) for at in (flow, other)}
        answers = [_answers(records, *pair) for pair in (sides, sides[::-1])]
        for asks, data in answers:
            after[data], on[data] = asks, ON_RECEIVED
        turns = _turns(records, *sides)
        if turns is not None:
            _turn_waits(records, turns, windows, after, on)
            counts.ping_pong += 1
            continue
        for at, mine, (asks, data), theirs in zip(
            (flow, other), sides, answers, sides[::-1], strict=True
        ):
            of_ask = np.full(len(records), -1, np.int64) if len(asks) else none
            of_ask[asks] = data
            _window_waits(records, mine, of_ask, windows[at], after, on, counts)
            if not len(asks):
                _data_of_reads(records, theirs, windows[at], after, counts)
    return after, on


def _window(statistics: MessageStatistics, flow: int) -> int | None:
    return statistics.messages(flow).max_outstanding


def _answers(records: Records, rows_of_flow: Ints, others: Ints) -> tuple[Ints, Ints]:
    """(requests of READs, data of each), in the order of requests."""
    asks = rows_of_flow[records["kind"][rows_of_flow] == ASKS]
    data = others[records["kind"][others] == RESPONSES]
    asked, begun = records["begun_ns"][asks], records["begun_ns"][data]
    n = min(len(asks), len(data))
    if len(asks) == len(data) and (asked <= begun).all():
        return asks, data
    taken, at = [], 0  # the capture begins or ends between a request and its data
    for time in begun.tolist():
        ask = at if at < len(asks) and asked[at] <= time else -1
        taken.append(ask)
        at += ask >= 0
    known = np.array(taken, np.int64).reshape(-1)
    return (asks[known[known >= 0]], data[known >= 0]) if n else (asks[:0], data[:0])


def _window_waits(
    records: Records,
    rows_of_flow: Ints,
    data_of: Ints,
    window: int | None,
    after: Int32s,
    on: Bytes,
    counts: _Told,
) -> None:
    """Each request waits for the request `window` before; data_of: data of each READ, -1: none."""
    members = rows_of_flow[records["kind"][rows_of_flow] != RESPONSES]
    if not len(members):
        return
    if window is None:
        counts.unknown += 1
        return
    counts.windows.append(window)
    waiting, before = members[window:], members[:-window]
    answer = data_of[before] if len(data_of) else np.full(len(before), -1, np.int64)
    after[waiting] = np.where(answer >= 0, answer, before)
    on[waiting] = np.where(answer >= 0, ON_RECEIVED, ON_ACKED)


def _data_of_reads(
    records: Records, rows_of_flow: Ints, window: int | None, after: Int32s, counts: _Told
) -> None:
    """Data whose requests are not in the capture."""
    members = rows_of_flow[records["kind"][rows_of_flow] == RESPONSES]
    if not len(members):
        return
    if window is None:
        counts.unknown += 1
        return
    counts.windows.append(window)
    after[members[window:]] = members[:-window]


def _turns(records: Records, rows_of_flow: Ints, others: Ints) -> Ints | None:
    """The messages of both directions in order; None if they do not take turns."""
    both = np.concatenate([rows_of_flow, others])
    # At equal times an ended message comes before a message that continues.
    both = both[np.lexsort((records["ended_ns"][both], records["begun_ns"][both]))]
    side = np.isin(both, others)
    kind = side * KINDS + records["kind"][both]
    longest = min(LONGEST_PATTERN, len(both) // LEAST_TURNS)
    takes_turns = any(
        (kind[n:] == kind[:-n]).all() and side[:n].any() and not side[:n].all()
        for n in range(2, longest + 1)
    )
    if not takes_turns:
        return None
    for of_side in (side, ~side):  # the last end of the other side must not be later
        ended = np.maximum.accumulate(np.where(of_side, records["ended_ns"][both], 0))
        if (ended[~of_side] > records["begun_ns"][both][~of_side]).any():
            return None
    return both


def _turn_waits(
    records: Records, both: Ints, windows: dict[int, int | None], after: Int32s, on: Bytes
) -> None:
    """Each message waits for the last message of the other side; in a turn of several messages,
    messages beyond the window wait for messages of their own side."""
    flow = records["flow"][both]
    at = np.arange(len(both))
    begins = np.append(True, flow[1:] != flow[:-1])
    first = np.maximum.accumulate(np.where(begins, at, 0))
    free = after[both] < 0
    later = free & (first > 0)
    after[both[later]], on[both[later]] = both[first[later] - 1], ON_RECEIVED
    for sender, window in windows.items():
        if window is None:
            continue
        full = at[free & (flow == sender) & (at - first >= window)]
        full = full[records["kind"][both[full - window]] == REQUESTS]
        after[both[full]], on[both[full]] = both[full - window], ON_ACKED


def _left_out(log: MessageLog) -> tuple[str, ...]:
    notes = []
    if log.feedback_packets:
        notes.append(
            f"{log.feedback_packets:,} ACKs, NAKs, CNPs and probes are omitted: "
            "the packet engine generates them"
        )
    if log.sent_again:
        notes.append(f"{log.sent_again:,} packets that were captured more than once are sent once")
    return tuple(notes)


def _notes(messages: int, counts: _Told) -> tuple[str, ...]:
    notes = []
    if messages:
        parts = []
        if counts.ping_pong:
            parts.append(f"ping-pongs: {counts.ping_pong:,}")
        if counts.windows:
            least, most = min(counts.windows), max(counts.windows)
            size = f"{least:,} to {most:,} messages"
            if least == most:
                size = "1 message" if most == 1 else f"{most:,} messages"
            parts.append(f"flows with a window of {size}: {len(counts.windows):,}")
        if parts:
            notes.append(f"{messages:,} messages wait for others as captured; {', '.join(parts)}")
    if counts.unknown:
        notes.append(
            f"{counts.unknown:,} flows wait for nothing: "
            "the capture has no answers (or READ requests) that show their window"
        )
    return tuple(notes)
