"""Generated packets as a nanosecond pcap: all headers laid out in one compiled pass.

Ethernet, IPv4 (correct checksum) or IPv6, UDP (checksum 0, as NICs send it), BTH, RETH on
the first packet of a WRITE, AETH on ACKs, payload, pad and, in frames written whole, the
ICRC. Memory is constant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from ...analyzer.decode.extensions import SCRATCH_BYTES, icrc
from ...analyzer.wire.bth import ROCE_UDP_PORT
from ...kernels.kernel import Bytes, Int, Ints, kernel
from ..fabrics.fabric import AddressPlan
from .from_pattern import put, put_checksum, put_word
from .queue_pairs import (
    AETH,
    BTH,
    ETHERNET,
    ICRC,
    IPV4,
    IPV6,
    RETH,
    START_NS,
    UDP,
    Packets,
    QueuePairs,
    packets_in_order,
)

_RECORD_HEADER = 16
_LINKTYPE_ETHERNET = 1
_LARGEST_PIECE = 64 << 20
DSCP_ECT0: Final = 26 << 2 | 2
"""The usual traffic class of RoCE, ECN-capable; plus one is CE."""
_REMOTE_KEY = 0x1234
_FIRST_ADDRESS = 0x7F00_0000_0000  # of the remote memory region
_CREDITS_INVALID = 0x1F

_SEND_FIRST, _WRITE_FIRST, _ACK = 0x00, 0x06, 0x11
_MIDDLE, _LAST, _ONLY = 1, 2, 4
"""Offset of these opcodes from the opcode First, equal for SEND and WRITE."""


class _Layout(NamedTuple):
    """The kernel's view of queue pairs and hosts; all integers are int64."""

    src: Ints
    dst: Ints
    src_qp: Ints
    dst_qp: Ints
    first_psn: Ints
    port: Ints
    stride: Ints
    message_bytes: Ints
    packets: Ints
    address: Bytes
    """uint8[hosts, 16]"""
    settings: Ints
    """entropy values, path MTU, IPv6, WRITE, bytes kept of a frame."""


def write_pcap(
    file: BinaryIO,
    pairs: QueuePairs,
    plan: AddressPlan,
    snap: int,
    progress: Callable[[int], None] | None = None,
    pieces: Iterable[Packets] | None = None,
) -> int:
    """Write all packets of the queue pairs; returns their number.

    snap: bytes kept of every frame, 0 for whole frames. progress: called with packets written.
    pieces: other packets of the same queue pairs, such as packets delivered by a replay.
    """
    sending = pairs.sending
    longest = sending.headers + RETH + sending.path_mtu + 3
    keep = min(snap or longest, longest)
    hosts = int(max(pairs.src.max(), pairs.dst.max())) + 1
    layout = _Layout(
        pairs.src,
        pairs.dst,
        pairs.src_qp,
        pairs.dst_qp,
        pairs.first_psn,
        pairs.port,
        pairs.stride,
        pairs.message_bytes,
        pairs.packets,
        plan.packed(np.arange(hosts), sending.ipv6),
        np.array(
            [sending.entropy_values, sending.path_mtu, sending.ipv6, sending.write, keep], np.int64
        ),
    )
    file.write(file_header(snap))
    at_once = max(1, min(1 << 18, _LARGEST_PIECE // (_RECORD_HEADER + keep)))
    buffer = np.zeros(0, np.uint8)
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    frame = np.zeros(longest, np.uint8)
    written = 0
    for packets in packets_in_order(pairs, at_once) if pieces is None else pieces:
        for start in range(0, len(packets.time_ns), at_once):
            piece = packets.part(start, start + at_once)
            rows = len(piece.time_ns)
            if len(buffer) < rows * (_RECORD_HEADER + keep):
                buffer = np.zeros(rows * (_RECORD_HEADER + keep), np.uint8)
            used = lay_out(piece, START_NS, layout, frame, scratch, buffer)
            file.write(buffer[:used].data)
            written += rows
            if progress is not None:
                progress(written)
    return written


def file_header(snap: int) -> bytes:
    """Header of a nanosecond pcap of Ethernet frames; snap: bytes kept per frame, 0 for all."""
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap or 262_144, _LINKTYPE_ETHERNET)


@kernel
def lay_out(
    packets: Packets, start_ns: Int, layout: _Layout, frame: Bytes, scratch: Bytes, out: Bytes
) -> Int:
    """Write record headers and frames into `out`; returns the bytes used.

    out: uint8[rows * (16 + bytes kept)] at least. frame: uint8[longest frame].
    scratch: uint8[SCRATCH_BYTES].
    """
    entropy_values, path_mtu = layout.settings[0], layout.settings[1]
    ipv6, write, keep = layout.settings[2] != 0, layout.settings[3] != 0, layout.settings[4]
    network = IPV6 if ipv6 else IPV4
    bth = ETHERNET + network + UDP
    used = 0
    for row in range(len(packets.time_ns)):
        pair, number = packets.pair[row], packets.number[row]
        is_ack = packets.is_ack[row]
        count = layout.packets[pair]
        src, dst = layout.src[pair], layout.dst[pair]
        qp, port = layout.dst_qp[pair], layout.port[pair]
        extension = payload = flags = 0
        if is_ack:
            src, dst, qp = dst, src, layout.src_qp[pair]
            opcode = _ACK
            psn = layout.first_psn[pair] + number * count + count - 1
            put(frame, bth + BTH, 4, (_CREDITS_INVALID << 24) | ((number + 1) & 0xFFFFFF))
            extension = AETH
        else:
            message, position = number // count, number % count
            last = position == count - 1
            payload = layout.message_bytes[pair] - position * path_mtu if last else path_mtu
            psn = layout.first_psn[pair] + number
            port = 0xC000 | ((port + number % entropy_values * layout.stride[pair]) & 0x3FFF)
            opcode = _WRITE_FIRST if write else _SEND_FIRST
            if count == 1:
                opcode += _ONLY
            elif last:
                opcode += _LAST
            elif position > 0:
                opcode += _MIDDLE
            flags = 0x80 if last else 0  # AckReq
            if write and position == 0:
                size = layout.message_bytes[pair]
                put(frame, bth + BTH, 8, _FIRST_ADDRESS + message * size)
                put(frame, bth + BTH + 8, 4, _REMOTE_KEY)
                put(frame, bth + BTH + 12, 4, size)
                extension = RETH
        pad = -payload & 3
        wire = bth + BTH + extension + payload + pad + ICRC
        captured = min(wire, keep)
        traffic_class = DSCP_ECT0 + np.int64(packets.marked[row])

        # Ethernet: locally administered addresses that end with the IP address
        for i in range(2):
            frame[6 * i] = 0x02
            frame[6 * i + 1] = 0x00
            host = dst if i == 0 else src
            for j in range(4):
                frame[6 * i + 2 + j] = layout.address[host, 12 + j]
        if ipv6:
            put(frame, 12, 2, 0x86DD)
            put(frame, ETHERNET, 4, 6 << 28 | traffic_class << 20)
            put(frame, ETHERNET + 4, 2, wire - ETHERNET - IPV6)
            frame[ETHERNET + 6] = 17
            frame[ETHERNET + 7] = 64
            for j in range(16):
                frame[ETHERNET + 8 + j] = layout.address[src, j]
                frame[ETHERNET + 24 + j] = layout.address[dst, j]
        else:
            put(frame, 12, 2, 0x0800)
            put(frame, ETHERNET, 2, 0x45 << 8 | traffic_class)
            put(frame, ETHERNET + 2, 2, wire - ETHERNET)
            put(frame, ETHERNET + 4, 2, number)  # identification: counts up in each flow
            put(frame, ETHERNET + 6, 2, 0x4000)  # do not fragment
            put(frame, ETHERNET + 8, 2, 64 << 8 | 17)
            for j in range(4):
                frame[ETHERNET + 12 + j] = layout.address[src, 12 + j]
                frame[ETHERNET + 16 + j] = layout.address[dst, 12 + j]
            put_checksum(frame, ETHERNET)
        udp = ETHERNET + network
        put(frame, udp, 2, port)
        put(frame, udp + 2, 2, ROCE_UDP_PORT)
        put(frame, udp + 4, 2, wire - udp)
        put(frame, udp + 6, 2, 0)
        frame[bth] = opcode
        frame[bth + 1] = pad << 4
        put(frame, bth + 2, 2, 0xFFFF)  # default partition
        frame[bth + 4] = 0
        put(frame, bth + 5, 3, qp)
        frame[bth + 8] = flags
        put(frame, bth + 9, 3, psn)
        begin = bth + BTH + extension
        for i in range(begin, min(begin + payload, captured)):
            frame[i] = np.uint8((psn + i) & 0xFF)
        for i in range(begin + payload, min(begin + payload + pad, captured)):
            frame[i] = 0
        if captured == wire:
            crc = icrc(frame, ETHERNET, bth, wire - ICRC, scratch)
            put_word(frame, wire - ICRC, crc)
        elif captured > wire - ICRC:
            for i in range(wire - ICRC, captured):
                frame[i] = 0

        time_ns = start_ns + packets.time_ns[row]
        put_word(out, used, time_ns // 1_000_000_000)
        put_word(out, used + 4, time_ns % 1_000_000_000)
        put_word(out, used + 8, captured)
        put_word(out, used + 12, wire)
        for i in range(captured):
            out[used + _RECORD_HEADER + i] = frame[i]
        used += _RECORD_HEADER + captured
    return used
