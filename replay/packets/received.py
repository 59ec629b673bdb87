"""The packets of a replay as seen by their receivers.

Their reordering, without the analyzer's state per flow, and those of a capture as a pcap of
headers.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...kernels.kernel import Bools, Bytes, Ints, NamedTuple, allocating
from ..generate.pcap_writer import DSCP_ECT0, file_header
from ..generate.queue_pairs import BTH, ETHERNET, ICRC, IPV4, IPV6, UDP, Packets
from ..hashing.keys import PacketKeys
from .model.model import MARKED, PS, TRIMMED, EngineResult, Workload


def received_order(result: EngineResult) -> Ints:
    """Numbers (over all messages) of the data packets that arrived untrimmed, by arrival."""
    assert result.arrived_ps is not None and result.arrived_flags is not None
    is_complete = (result.arrived_ps >= 0) & ((result.arrived_flags & (TRIMMED >> 56)) == 0)
    rows = np.flatnonzero(is_complete)
    return rows[np.argsort(result.arrived_ps[rows], kind="stable")]


def received_packets(workload: Workload, result: EngineResult) -> Packets:
    """The same packets for `write_pcap`, of a workload of queue pairs (`from_queue_pairs`)."""
    order = received_order(result)
    assert result.arrived_ps is not None and result.arrived_flags is not None
    message = np.searchsorted(workload.packet_start, order, side="right") - 1
    flow = workload.flow[message].astype(np.int64)
    return Packets(
        time_ns=result.arrived_ps[order] // PS,
        pair=flow,
        number=order - workload.packet_start[workload.flow_start[flow]],
        is_ack=np.zeros(len(order), np.bool_),
        marked=(result.arrived_flags[order] & (MARKED >> 56)) != 0,
    )


_WHOLE_MASK = TRIMMED >> 56


class Order(NamedTuple):
    """Of all flows together."""

    packets: int
    """Data packets that arrived whole."""
    reordered: int
    """Packets that arrived after a packet of their flow with a higher number (RFC 4737, 3)."""
    max_extent: int
    """Most arrivals since the first such packet (RFC 4737, 4.2.2); 0 without reordering."""


def reordering(workload: Workload, result: EngineResult) -> Order:
    """Needs a run with `keep_arrivals`. Packets of a flow are numbered in order of their
    messages; a retransmitted packet keeps its number."""
    assert result.arrived_ps is not None and result.arrived_flags is not None
    counts = np.zeros(len(Order._fields), np.int64)
    first = workload.packet_start[workload.flow_start].astype(np.int64)
    _count(first, result.arrived_ps, result.arrived_flags, counts)
    return Order(*counts.tolist())


@allocating
def _count(first: Ints, arrived_ps: Ints, flags: Bytes, counts: Ints) -> None:
    """first: int64[F + 1], number of the first packet of each flow; counts: the fields of Order."""
    for flow in range(len(first) - 1):
        begin, end = first[flow], first[flow + 1]
        soonest = np.int64((1 << 63) - 1)  # of the packets with higher numbers
        late = np.int64(0)
        for packet in range(end - 1, begin - 1, -1):
            time = arrived_ps[packet]
            if time < 0 or flags[packet] & _WHOLE_MASK:
                continue
            counts[0] += 1
            if time > soonest:
                late += 1
            else:
                soonest = time
        if not late:
            continue
        counts[1] += late
        order = np.argsort(arrived_ps[begin:end], kind="mergesort")
        highest = np.empty(end - begin, np.int64)  # packets with a higher number than all before
        position = np.empty(end - begin, np.int64)
        records, arrivals = np.int64(0), np.int64(0)
        for number in order:
            if arrived_ps[begin + number] < 0 or flags[begin + number] & _WHOLE_MASK:
                continue
            if records == 0 or number > highest[records - 1]:
                highest[records], position[records] = number, arrivals
                records += 1
            else:
                low, high = np.int64(0), records - 1
                while low < high:
                    middle = (low + high) // 2
                    if highest[middle] > number:
                        high = middle
                    else:
                        low = middle + 1
                counts[2] = max(counts[2], arrivals - position[low])
            arrivals += 1


_RECORD = 16
_FIRST, _MIDDLE, _LAST, _ONLY = 0x00, 0x01, 0x02, 0x04
"""Opcodes of SEND on a reliable connection."""
_ACK, _AETH = 0x11, 4
"""Acknowledge, and bytes of its AETH."""
_CREDITS_UNKNOWN = 0x1F
_AT_ONCE = 1 << 16


def write_received(file: BinaryIO, workload: Workload, result: EngineResult) -> int:
    """Write the data packets that arrived untrimmed, by arrival; returns their number.

    Needs a run with `keep_arrivals` and `keep_sent`. Addresses, source port, flow label and queue
    pair are from the captured unit; PSNs count the packets of a queue pair from 0 in the order of
    first transmission; ECN marks are from the replay. Fields unknown to a unit are synthetic: SEND
    on a reliable connection (ONLY packets if a queue pair also sends data of READs), sizes in steps
    of 4 bytes, DSCP and MAC addresses as in `generate`.
    """
    assert result.arrived_ps is not None and result.arrived_flags is not None
    rows = received_order(result)
    marked = (result.arrived_flags[rows] & (MARKED >> 56)) != 0
    is_ack = np.zeros(len(rows), np.bool_)
    return _write(file, workload, result, rows, result.arrived_ps[rows], is_ack, marked)


def write_sent(file: BinaryIO, workload: Workload, result: EngineResult) -> int:
    """Write every data packet at the start of its first transmission, and an ACK of every message
    when its receiver sent it; returns their number. Fields as in `write_received`.

    Needs a run with `keep_arrivals` and `keep_sent`, and units with the queue pairs of both ends.
    """
    assert result.sent_ps is not None
    data = np.flatnonzero(result.sent_ps >= 0)
    done = np.flatnonzero(result.received_ps >= 0)
    last = workload.packet_start[done + 1] - 1
    rows = np.concatenate([data, last])
    time_ps = np.concatenate([result.sent_ps[data], result.received_ps[done]])
    is_ack = np.arange(len(rows)) >= len(data)
    order = np.lexsort((is_ack, time_ps))
    marked = np.zeros(len(rows), np.bool_)
    return _write(file, workload, result, rows[order], time_ps[order], is_ack[order], marked)


def _write(
    file: BinaryIO,
    workload: Workload,
    result: EngineResult,
    rows: Ints,
    time_ps: Ints,
    is_ack: Bools,
    marked: Bools,
) -> int:
    """Write these packets, by their numbers over all messages; returns their number."""
    psn, several = _sequence_numbers(workload, result)
    start_ns = int(workload.traffic.first_ns.min())
    file.write(file_header(0))
    for begin in range(0, len(rows), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        row, ack = rows[part], is_ack[part]
        message = np.searchsorted(workload.packet_start, row, side="right") - 1
        unit = workload.units_of(row, message) + np.where(ack, workload.units, 0)
        opcode = _opcodes(workload, row, message, several)
        file.write(
            _records(
                start_ns + time_ps[part] // PS,
                workload.traffic.keys.take(unit),
                np.where(ack, 0, workload.sizes_of(row, message)),
                np.where(ack, _ACK, opcode),
                psn[row],
                marked[part],
            )
        )
    return len(rows)


def _opcodes(workload: Workload, row: Ints, message: Ints, several: Bools) -> Ints:
    first = row == workload.packet_start[message]
    last = row + 1 == workload.packet_start[message + 1]
    opcode = np.where(first, _FIRST, np.where(last, _LAST, _MIDDLE))
    opcode[(first & last) | several[workload.flow[message]]] = _ONLY
    return opcode


def _sequence_numbers(workload: Workload, result: EngineResult) -> tuple[Ints, Bools]:
    """(PSN of each sent packet, whether a flow shares its queue pair with other flows)."""
    assert result.sent_ps is not None
    keys, units = workload.traffic.keys, len(workload.src)
    columns = [keys.src[:units], keys.dst[:units], keys.dest_qp[:units, None].view(np.uint8)]
    _, pair, count = np.unique(
        np.concatenate(columns, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    pair = pair.reshape(-1)
    of_packet = np.repeat(pair[workload.flow], workload.packets)
    sent = np.flatnonzero(result.sent_ps >= 0)
    order = sent[np.lexsort((sent, result.sent_ps[sent], of_packet[sent]))]
    ordered = of_packet[order]
    psn = np.zeros(len(result.sent_ps), np.int64)
    psn[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return psn, count[pair] > 1


def _records(
    time_ns: Ints, keys: PacketKeys, size: Ints, opcode: Ints, psn: Ints, marked: Bools
) -> bytes:
    """Record headers and frames up to the BTH, concatenated."""
    network = np.where(keys.ipv6, IPV6, IPV4)
    kept = ETHERNET + network + UDP + BTH + np.where(opcode == _ACK, _AETH, 0)
    wire = kept + ICRC + (np.maximum(0, size - kept - ICRC) & ~3)
    out = np.zeros((len(time_ns), _RECORD + ETHERNET + IPV6 + UDP + BTH + _AETH), np.uint8)
    for at, value in ((0, time_ns // 10**9), (4, time_ns % 10**9), (8, kept), (12, wire)):
        out[:, at : at + 4] = value.astype("<u4")[:, None].view(np.uint8)
    frame = out[:, _RECORD:]
    frame[:, [0, 6]] = 0x02
    frame[:, 2:6], frame[:, 8:12] = keys.dst[:, 12:], keys.src[:, 12:]
    traffic_class = DSCP_ECT0 + marked.astype(np.int64)  # ECT(0) + 1 is CE
    for ipv6 in (False, True):
        rows = np.flatnonzero(keys.ipv6 == ipv6)
        if len(rows):
            frames = frame[rows]
            fill = _ipv6 if ipv6 else _ipv4
            fill(frames, keys.take(rows), wire[rows], traffic_class[rows], psn[rows])
            _transport(
                frames[:, ETHERNET + (IPV6 if ipv6 else IPV4) :],
                keys.take(rows),
                (wire - ETHERNET - network)[rows],
                opcode[rows],
                psn[rows],
            )
            frame[rows] = frames
    return out[np.arange(out.shape[1]) < (_RECORD + kept)[:, None]].tobytes()


def put_column(frame: Bytes, at: int, width: int, values: Ints | int) -> None:
    """Write values in network byte order, at most 4 bytes wide."""
    words = np.broadcast_to(np.asarray(values, np.int64), (len(frame),)).astype(">u4")
    frame[:, at : at + width] = words[:, None].view(np.uint8)[:, 4 - width :]


def _ipv4(frame: Bytes, keys: PacketKeys, wire: Ints, traffic_class: Ints, number: Ints) -> None:
    put_column(frame, 12, 2, 0x0800)
    header = frame[:, ETHERNET : ETHERNET + IPV4]
    put_column(header, 0, 2, 0x45 << 8 | traffic_class)
    put_column(header, 2, 2, wire - ETHERNET)
    put_column(header, 4, 2, number & 0xFFFF)
    put_column(header, 6, 4, 0x4000_0000 | 64 << 8 | 17)  # do not fragment, TTL, UDP
    header[:, 12:16], header[:, 16:20] = keys.src[:, 12:], keys.dst[:, 12:]
    total = header.copy().view(">u2").astype(np.int64).sum(1)
    total = (total & 0xFFFF) + (total >> 16)
    put_column(header, 10, 2, ((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF)


def _ipv6(frame: Bytes, keys: PacketKeys, wire: Ints, traffic_class: Ints, _number: Ints) -> None:
    put_column(frame, 12, 2, 0x86DD)
    header = frame[:, ETHERNET : ETHERNET + IPV6]
    label = keys.flow_label.astype(np.int64) & 0xFFFFF
    put_column(header, 0, 4, 6 << 28 | traffic_class << 20 | label)
    put_column(header, 4, 2, wire - ETHERNET - IPV6)
    put_column(header, 6, 2, 17 << 8 | 64)
    header[:, 8:24], header[:, 24:40] = keys.src, keys.dst


def _transport(frame: Bytes, keys: PacketKeys, length: Ints, opcode: Ints, psn: Ints) -> None:
    """UDP without a checksum, and BTH of the default partition."""
    put_column(frame, 0, 2, keys.sport.astype(np.int64))
    put_column(frame, 2, 2, ROCE_UDP_PORT)
    put_column(frame, 4, 2, length)
    bth = frame[:, UDP:]
    put_column(bth, 0, 1, opcode)
    put_column(bth, 2, 2, 0xFFFF)
    put_column(bth, 5, 3, keys.dest_qp.astype(np.int64))
    put_column(bth, 8, 1, np.where(opcode & (_LAST | _ONLY), 0x80, 0))  # AckReq
    put_column(bth, 9, 3, psn & 0xFFFFFF)
    bth[opcode == _ACK, BTH] = _CREDITS_UNKNOWN
