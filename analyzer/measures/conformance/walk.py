"""One pass over a tracked batch that applies the rules to every packet."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...track import batch as verdicts
from ...track.batch import Rows
from ...wire import opcodes
from ...wire.packets import ACK_REQUEST as ASKS_FOR_ACK
from ...wire.packets import HAS_AETH, IPV6
from ...wire.psn import psn_add, psn_distance
from .rules.ack_requests import asks_for_answer
from .rules.reads import asks, asks_again, comes_again, learn_path_mtu, reserves, responds
from .rules.requester import after_fatal, arrives, misses_the_first, sends_again, sends_new, start
from .rules.responder import answers
from .state import UNPAIRED, Book, Here


@subkernel
def walk(book: Book, rows: Rows) -> None:
    """Judge all rows of a batch."""
    for i in range(len(rows.flow)):
        g = np.int64(rows.flow[i])
        opcode = np.int64(rows.opcode[i])
        bits = np.int64(opcodes.OPCODE_CLASS[opcode])
        v = np.int64(rows.verdict[i])
        if opcode >> 5 != opcodes.RC and opcode >> 5 != opcodes.XRC:
            continue  # the only go-back-N transports
        if not bits & opcodes.SEQUENCED or v == verdicts.TAP_COPY or v == verdicts.MIRROR_DUPLICATE:
            continue
        f = np.int64(rows.peer[g])
        psn = np.int64(rows.psn[i])
        time = rows.time_ns[i]
        here = Here(np.int64(rows.tap[i]), time, rows.frame_number[i])
        payload = np.int64(rows.payload_bytes[i])
        dma_length = np.int64(rows.dma_length[i])
        learn_path_mtu(book.states[g], bits, payload)
        if bits & opcodes.REQUEST:
            asks_for_ack = np.int64(rows.bth_flags[i]) & ASKS_FOR_ACK != 0
            _request(book, g, f, bits, v, psn, dma_length, asks_for_ack, here)
            continue
        if f < 0:
            book.used[UNPAIRED] += 1
            continue
        s = book.states[f]
        learn_path_mtu(s, bits, payload)
        if not s.started or v == verdicts.DUPLICATE:
            continue
        if bits & opcodes.RESPONSE_DATA:
            responds(book, f, s, bits, v, psn, here)
        elif bits & opcodes.ACKNOWLEDGE and rows.decode_flags[i] & HAS_AETH:
            has_ids = rows.decode_flags[i] & IPV6 == 0
            ip_id = np.int64(rows.ip_id[i])
            aeth = np.int64(rows.aeth[i])
            answers(book, f, s, psn, aeth, ip_id, has_ids, here)


@inlined
def _request(
    book: Book,
    f: Int,
    peer: Int,
    bits: Int,
    verdict: Int,
    psn: Int,
    dma_length: Int,
    asks_for_ack: bool,
    here: Here,
) -> None:
    s = book.states[f]
    s.requests += 1
    if not s.started or verdict == verdicts.RESTARTED:
        start(s, psn)
    if peer >= 0 and s.path_mtu == 0:
        s.path_mtu = book.states[peer].path_mtu
    if verdict == verdicts.RECOVERED and psn_distance(psn, np.int64(s.first)) < 0:
        misses_the_first(s, psn)
    is_read = bits & opcodes.READ_REQUEST != 0
    count = reserves(s, dma_length) if is_read else np.int64(1)
    in_order = verdict == verdicts.IN_ORDER or verdict == verdicts.RESTARTED
    arrives(s, psn, max(count, 1), in_order, here.time)
    asks_for_data = bits & (opcodes.READ_REQUEST | opcodes.ATOMIC) != 0
    if verdict == verdicts.DUPLICATE or verdict == verdicts.OVERTAKEN:
        if asks_for_data:
            comes_again(book, s, psn)
        s.reordered += verdict == verdicts.OVERTAKEN  # judged at its retransmission
        return
    if s.fatal:
        after_fatal(book, f, s, psn, here)
    again = verdict == verdicts.RETRANSMITTED or verdict == verdicts.RECOVERED
    if verdict == verdicts.RECOVERED:
        s.lost_before += 1
    if verdict == verdicts.REORDERED:
        s.reordered += 1
    if again:
        sends_again(book, f, s, psn, max(count, 1), is_read, here)
    elif verdict != verdicts.REORDERED:
        sends_new(book, f, s, psn, max(count, 1), is_read, here)
    first_here = verdict != verdicts.RETRANSMITTED
    if asks_for_data:
        if first_here:
            asks(book, s, psn, dma_length)
        else:
            asks_again(book, f, s, psn, dma_length, here)
    if first_here:
        if bits & opcodes.ENDS:
            s.ended += 1
        if asks_for_ack and psn_distance(psn, np.int64(s.unacked)) >= 0:
            if s.asked == 0 or psn_distance(psn, np.int64(s.asked_psn)) > 0:
                s.asked_psn = psn
            s.asked += 1
            if not s.loose and s.arrived == psn_add(psn, max(count, 1)):
                asks_for_answer(s, psn, here.time, here.frame)
    s.loose = is_read and count == 0
    s.request_time = here.time
