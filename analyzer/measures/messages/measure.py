"""Messages with sizes and times, response latency, and goodput.

A message is a SEND or WRITE (First to Last, or Only), a READ request with its
responses, or an atomic with its ACK; it belongs to the flow of the requester.
Only first copies of packets count, so a retransmitted message is one message.

- size: payload, for a READ the requested length, for an atomic 8 bytes
- duration: first to last packet of SENDs and WRITEs of more than one packet
- completion: first packet to the first response that covers its last PSN; for a READ
  to the last response by PSN, for an atomic to its ACK
- request to ACK: a packet with AckReq to the first ACK of the same PSN; not for retransmitted
packets (Karn's rule), nor for packets that a later ACK covers
- goodput: see `delivered`
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...results.flow import Latency, Messages
from ...statistics.histogram import HistogramPool, Histograms, observe
from ...statistics.per_flow import PerFlow, Pool, Tables
from ...statistics.per_flow import Rows as FlowRows
from ...track.batch import (
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
from ...wire import opcodes
from ...wire.packets import ACK_REQUEST, HAS_AETH, HAS_RETH
from ...wire.psn import psn_add
from ...wire.record import Record
from . import awaiting
from .awaiting import answered, begin_message, sent_again, wait
from .delivered import acknowledged, arrived, began_again, offered, resent
from .pieces import begin, continues, extend, place, set_aside
from .state import MessageArrays, close, copied, empty

_NEW: Final = sum(1 << v for v in (IN_ORDER, AHEAD, REORDERED, RECOVERED, RESTARTED))
_RELIABLE: Final = 0x8000  # its requests are acknowledged
_CLASS: Final = opcodes.OPCODE_CLASS | np.where(
    np.isin(opcodes.TRANSPORT_OF, (opcodes.RC, opcodes.RD, opcodes.XRC, opcodes.MRC)), _RELIABLE, 0
).astype(np.uint16)
_ATOMIC_BYTES: Final = 8


@subkernel
def _update(arrays: MessageArrays, histograms: Histograms, rows: Rows) -> None:
    for i in range(len(rows.flow)):
        bits = np.int64(_CLASS[rows.opcode[i]])
        if bits & opcodes.ACKNOWLEDGE:
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
        if bits & (opcodes.REQUEST | opcodes.RESPONSE_DATA) == 0:
            continue
        f = np.int64(rows.flow[i])
        s = arrays.state[f]
        v = np.int64(rows.verdict[i])
        number = np.int64(rows.subject_psn[i])
        if v == RETRANSMITTED:
            resent(s, number, rows.time_ns[i], bits & opcodes.REQUEST != 0)
            if bits & opcodes.REQUEST:
                sent_again(arrays.rings, s, number)
        if not (1 << v) & _NEW and (bits & opcodes.SEQUENCED or v != NOT_SEQUENCED):
            continue
        s.seen = 1
        time = rows.time_ns[i]
        payload = np.int64(rows.payload_bytes[i])
        if bits & opcodes.REQUEST == 0:
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
                    bits & opcodes.BEGINS != 0,
                    bits & opcodes.ENDS != 0,
                    v != RECOVERED,
                    time,
                )
            continue
        watched = bits & _RELIABLE != 0 and rows.peer[f] >= 0
        wants = (awaiting.WATCHED if watched else 0) | (
            awaiting.ACK
            if bits & _RELIABLE and rows.bth_flags[i] & ACK_REQUEST and v != RECOVERED
            else 0
        )
        if v == RESTARTED:
            close(arrays, f)
            began_again(s)
        if bits & _RELIABLE:
            offered(s, number, payload, time)
        if watched and bits & opcodes.BEGINS:
            begin_message(s)
        if bits & (opcodes.READ_REQUEST | opcodes.ATOMIC):
            s.messages += 1
            if bits & opcodes.ATOMIC:
                observe(histograms, f, awaiting.SIZE, _ATOMIC_BYTES)
            elif rows.decode_flags[i] & HAS_RETH:
                observe(histograms, f, awaiting.SIZE, np.int64(rows.dma_length[i]))
            if bits & opcodes.READ_REQUEST and v != RECOVERED:
                wants |= awaiting.FIRST_RESPONSE
            wants = wants & ~awaiting.ACK | awaiting.COMPLETION | awaiting.LAST_RESPONSE
            wait(arrays.rings, arrays.used, s, number, wants, time, time)
            continue
        if bits & opcodes.BEGINS and bits & opcodes.ENDS:
            s.messages += 1
            observe(histograms, f, awaiting.SIZE, payload)
            if bits & _RELIABLE:
                wants |= awaiting.COMPLETION
                wait(arrays.rings, arrays.used, s, number, wants, time, time)
            continue
        _assemble(arrays, histograms, s, f, bits, number, payload, time, wants)


@inlined
def _acknowledge(
    arrays: MessageArrays, histograms: Histograms, f: Int, number: Int, aeth: Int, time: Int
) -> None:
    """An ACK covers its PSN; a NAK or RNR NAK names the first PSN it does not cover."""
    s = arrays.state[f]
    kind = (aeth >> 24) & opcodes.SYNDROME_KIND_MASK
    if kind == opcodes.SYNDROME_ACK:
        s.answered = 1
        acknowledged(s, number, time)
        answered(arrays.rings, histograms, s, f, number, False, False, False, True, time)
    elif kind == opcodes.SYNDROME_NAK or kind == opcodes.SYNDROME_RNR_NAK:
        s.answered = 1
        number = psn_add(number, -1)
        acknowledged(s, number, time)
        answered(arrays.rings, histograms, s, f, number, False, False, False, False, time)


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
    begins, ends = bits & opcodes.BEGINS != 0, bits & opcodes.ENDS != 0
    if continues(arrays.shelves, s, c, number, begins):
        if begins:
            begin(c, number, True, payload, time, wants & awaiting.WATCHED != 0)
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
            wants & awaiting.WATCHED != 0,
        )
    wants &= awaiting.ACK
    if wants:
        wait(arrays.rings, arrays.used, s, number, wants, time, time)
    if c.last:
        if c.first:
            c.open = 0
            s.messages += 1
            observe(histograms, f, awaiting.SIZE, c.bytes)
            observe(histograms, f, awaiting.DURATION, c.ended - c.begun)
            if bits & _RELIABLE:
                wants = awaiting.COMPLETION | (awaiting.WATCHED if c.watched else 0)
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
            "state", "ring", "ring_bits", used=1, base=1, records_each=awaiting.MOST_ENTRIES
        ),
    }

    def __init__(self) -> None:
        super().__init__(empty(0))
        self._histograms = HistogramPool(awaiting.KINDS)

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches must come in capture order."""
        self.grow(batch.n_flows)
        _update(self.arrays, self._histograms.arrays, batch.rows)

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
            size_bytes=self._histograms.quantiles(flow, awaiting.SIZE),
            duration_ns=self._histograms.quantiles(flow, awaiting.DURATION),
            completion_ns=self._histograms.quantiles(flow, awaiting.COMPLETED),
            max_outstanding=maximum,
        )

    def latency(self, flow: int) -> Latency:
        """Times from one flow's requests to their responses."""
        return Latency(
            request_to_ack_ns=self._histograms.quantiles(flow, awaiting.ACKED),
            read_to_first_response_ns=self._histograms.quantiles(flow, awaiting.RESPONDED),
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
