"""Frames of training jobs as taps see them: NCCL's clear-to-send, data and ACKs as pcap records.

Headers are those of ConnectX and NCCL: RDMA WRITE with an immediate of the message's bytes in
little-endian order, clear-to-send with the body of one of its layouts (docs/jobs.md). Payloads are
zeros.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ...kernels.kernel import Bools, Bytes, Int32s, Ints, NamedTuple
from ..generate.queue_pairs import AETH, BTH, ETHERNET, ICRC, IPV4, RETH, UDP
from ..packets.hosts.feedback import CNP, FORTH
from ..packets.model.model import ACK, IDENTITY, MARKED, NUMBER_BITS, NUMBER_MASK, TRIMMED
from ..packets.received import put_column
from .nccl import CTS_BYTES, GRANT

IMMEDIATE: Final = 4
HEADERS: Final = ETHERNET + IPV4 + UDP + BTH
CTS_STRIDE: Final = 512
CTS_ROWS: Final = 256
"""Of the table of a receiver's clear-to-send: a row per message, 8 x 64 bytes."""
_WRITE_FIRST, _WRITE_MIDDLE, _WRITE_LAST_IMM = 0x06, 0x07, 0x09
_WRITE_ONLY, _WRITE_ONLY_IMM, _ACKNOWLEDGE, _CNP = 0x0A, 0x0B, 0x11, 0x81
_TRAFFIC_CLASS: Final = 26 << 2 | 2
"""DSCP 26, ECT(0)."""
_CNP_CLASS: Final = 48 << 2
_NAK_SEQUENCE: Final = 0x60
_CREDITS_INVALID: Final = 0x1F
_AT_ONCE: Final = 1 << 16
_RECORD: Final = 16


GRANTS: Final[Mapping[str, np.dtype[np.void]]] = {
    "2.26": np.dtype(
        [("address", "<u8"), ("size", "<u8"), ("keys", "<u4", (4,)), ("requests", "<u4"),
         ("tag", "<u4"), ("index", "<u8")]
    ),
    "2.20": np.dtype(
        [("address", "<u8"), ("size", "<i4"), ("keys", "<u4", (2,)), ("requests", "<u4"),
         ("tag", "<u4"), ("padding", "<u4"), ("index", "<u8")]
    ),
}  # fmt: skip
"""Bodies of clear-to-send by the first version of NCCL that has them."""


class Flows(NamedTuple):
    """Equally long columns, one row per flow of the packet engine: data or grants."""

    src: Bytes
    """uint8[F, 4]: address of the sender of its requests."""
    dst: Bytes
    dest_qp: Ints
    ack_qp: Ints
    """Destination of its ACKs."""
    port: Ints
    """UDP source port of both directions."""
    first_psn: Ints


class Messages(NamedTuple):
    """Equally long columns, one row per message of the packet engine."""

    flow: Int32s
    in_flow: Ints
    """Number within its flow."""
    first_packet: Ints
    """Number of its first packet within its flow."""
    packets: Ints
    size: Ints
    kind: Ints
    """DATA, GRANT or HIDDEN."""
    number: Ints
    """Within its connection."""
    address: Ints
    """Where it is written: slot of the data, row of the clear-to-send."""
    key: Ints
    """Remote key there."""
    body: Bytes
    """uint8[M, 64] of clear-to-send, zeros for data."""


def grant_body(
    layout: str, address: Ints, size: Ints, key: Ints, rank: Ints, number: Ints
) -> Bytes:
    """uint8[n, 64]: the body of clear-to-send. layout: a version of NCCL; rank: of the peer that
    shall send; number: of the message, from 0."""
    n = len(address)
    rows = np.zeros(n, GRANTS[layout])
    rows["address"], rows["size"] = address, size
    rows["keys"][:, 0] = key
    rows["requests"], rows["tag"], rows["index"] = 1, rank, number + 1
    body = np.zeros((n, CTS_BYTES), np.uint8)
    body[:, : rows.itemsize] = rows.view(np.uint8).reshape(n, -1)
    return body


def packet_bytes(size: Ints, kind: Ints, packets: Ints, number: Ints, payload: int) -> Ints:
    """Bytes on the wire of packet `number` of messages."""
    first, last = number == 0, number == packets - 1
    held = np.where(last, size - (packets - 1) * payload, payload)
    immediate = np.where(last & (kind != GRANT), IMMEDIATE, 0)
    return HEADERS + np.where(first, RETH, 0) + immediate + held + (-held & 3) + ICRC


class Seen(NamedTuple):
    """Equally long columns, one row per packet at a tap, in order of time."""

    time_ns: Ints
    message: Ints
    number: Ints
    """Packet within the message."""
    key: Ints
    """With flags."""
    identification: Ints
    """Of the IPv4 header."""
    hops: Ints
    """Switches that it has passed."""
    source: Bytes
    """uint8[n, 6]: Ethernet addresses of the link."""
    target: Bytes

    def take(self, rows: Ints | slice) -> Seen:
        """Some of the rows."""
        return Seen._make(column[rows] for column in self)


def identifications(way: Ints, key: Ints, stamp: Ints, time: Ints) -> Ints:
    """int64[n], 16 bits: of packets that pass taps at a time. A queue pair numbers what it sends,
    requests and ACKs, in the order in which they pass their first tap; a packet keeps its number
    at all taps. way: number of the sending queue pair; key, stamp: tell its packets apart."""
    kind = key & ~np.int64(MARKED)
    packet = _groups(way, kind, stamp)
    first = np.full(int(packet.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, packet, time)
    way_of = np.empty(len(first), np.int64)
    way_of[packet] = way
    order = np.lexsort((first, way_of))
    starts = np.searchsorted(way_of[order], way_of[order])
    numbers = np.empty(len(first), np.int64)
    numbers[order] = np.arange(len(order)) - starts + 1
    return numbers[packet] & 0xFFFF


def _groups(*columns: Ints) -> Ints:
    """int64[n]: equal rows have the same number, from 0."""
    order = np.lexsort(columns)
    rows = np.stack(columns)[:, order]
    new = np.append(True, (rows[:, 1:] != rows[:, :-1]).any(0))[: len(order)]
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(new) - 1
    return groups


def hops_of(key: Ints, trail: Ints) -> Ints:
    """Switches that packets have passed, from `Passage.trail`."""
    return np.where(key & ACK != 0, trail & (FORTH - 1), trail) >> 1


def message_and_number(key: Ints) -> tuple[Ints, Ints]:
    """Of packet keys."""
    return (key & IDENTITY) >> NUMBER_BITS, key & NUMBER_MASK


def records(
    seen: Seen, flows: Flows, messages: Messages, payload: int, snap: int
) -> Iterator[bytes]:
    """The records of a pcap file. snap: bytes kept per frame."""
    for begin in range(0, len(seen.time_ns), _AT_ONCE):
        part = seen.take(slice(begin, begin + _AT_ONCE))
        yield _records(part, flows, messages, payload, snap)


def _records(seen: Seen, flows: Flows, messages: Messages, payload: int, snap: int) -> bytes:
    message, flow = seen.message, messages.flow[seen.message].astype(np.int64)
    answer, notice = seen.key & ACK != 0, seen.key & CNP != 0
    kind = messages.kind[message]
    first = (seen.number == 0) & ~answer
    last = (seen.number == messages.packets[message] - 1) & ~answer
    sizes = packet_bytes(
        messages.size[message], kind, messages.packets[message], seen.number, payload
    )
    wire = np.where(answer, HEADERS + np.where(notice, 16, AETH) + ICRC, sizes)
    room = max(min(snap, int(wire.max(initial=0))), HEADERS + RETH + IMMEDIATE + CTS_BYTES)
    out = np.zeros((len(message), room), np.uint8)

    out[:, :6], out[:, 6:12] = seen.target, seen.source
    put_column(out, 12, 2, 0x0800)
    marked = (seen.key & MARKED != 0) & ~answer
    ip = out[:, ETHERNET : ETHERNET + IPV4]
    traffic_class = np.where(notice, _CNP_CLASS, _TRAFFIC_CLASS + marked)
    put_column(ip, 0, 2, 0x45 << 8 | traffic_class)
    put_column(ip, 2, 2, wire - ETHERNET)
    put_column(ip, 4, 2, seen.identification)
    put_column(ip, 6, 2, 0x4000)
    put_column(ip, 8, 2, (64 - seen.hops) << 8 | 17)
    ip[:, 12:16] = np.where(answer[:, None], flows.dst[flow], flows.src[flow])
    ip[:, 16:20] = np.where(answer[:, None], flows.src[flow], flows.dst[flow])
    total = ip.copy().view(">u2").astype(np.int64).sum(1)
    total = (total & 0xFFFF) + (total >> 16)
    put_column(ip, 10, 2, ((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF)

    udp = out[:, ETHERNET + IPV4 :]
    put_column(udp, 0, 2, flows.port[flow])
    put_column(udp, 2, 2, 4791)
    put_column(udp, 4, 2, wire - ETHERNET - IPV4)

    bth = out[:, HEADERS - BTH :]
    held = wire - HEADERS - ICRC - np.where(first, RETH, 0)
    held -= np.where(last & (kind != GRANT), IMMEDIATE, 0)
    true_size = np.where(last, messages.size[message] - seen.number * payload, held)
    pad = np.where(answer, 0, held - true_size)
    bth[:, 0] = _opcodes(kind, first, last, answer, notice)
    bth[:, 1] = 0x40 | pad << 4
    put_column(bth, 2, 2, 0xFFFF)
    bth[:, 4] = np.where(notice, 0x40, 0)  # BECN
    put_column(bth, 5, 3, np.where(answer, flows.ack_qp[flow], flows.dest_qp[flow]))
    bth[:, 8] = np.where(last, 0x80, 0)
    psn = flows.first_psn[flow] + messages.first_packet[message] + seen.number
    put_column(bth, 9, 3, np.where(notice, 0, psn) & 0xFFFFFF)

    extension = out[:, HEADERS:]
    rows = np.flatnonzero(first)
    reth = np.zeros((len(rows), RETH), np.uint8)
    put_column(reth, 0, 4, messages.address[message[rows]] >> 32)
    put_column(reth, 4, 4, messages.address[message[rows]] & 0xFFFFFFFF)
    put_column(reth, 8, 4, messages.key[message[rows]])
    put_column(reth, 12, 4, messages.size[message[rows]])
    extension[rows, :RETH] = reth
    rows = np.flatnonzero(last & (kind != GRANT))
    at = np.where(first[rows], RETH, 0)[:, None] + np.arange(IMMEDIATE)
    value = messages.size[message[rows]].astype("<u4")
    extension[rows[:, None], at] = value[:, None].view(np.uint8)
    rows = np.flatnonzero(first & (kind == GRANT))
    extension[rows, RETH : RETH + CTS_BYTES] = messages.body[message[rows]]
    rows = np.flatnonzero(answer & ~notice)
    refused = seen.key[rows] & TRIMMED != 0
    aeth = np.zeros((len(rows), AETH), np.uint8)
    aeth[:, 0] = np.where(refused, _NAK_SEQUENCE, _CREDITS_INVALID)
    complete = messages.in_flow[message[rows]]
    complete = complete + (~refused & (seen.number[rows] == messages.packets[message[rows]] - 1))
    put_column(aeth, 1, 3, complete & 0xFFFFFF)
    extension[rows, :AETH] = aeth
    kept = np.minimum(wire, snap)
    for row in np.flatnonzero(kept == wire).tolist():
        _seal(out[row], int(wire[row]))
    record = np.stack([seen.time_ns // 10**9, seen.time_ns % 10**9, kept, wire], 1).astype("<u4")
    both = np.concatenate([record.view(np.uint8).reshape(-1, _RECORD), out], 1)
    return both[np.arange(both.shape[1]) < (_RECORD + kept)[:, None]].tobytes()


def _opcodes(kind: Ints, first: Bools, last: Bools, answer: Bools, notice: Bools) -> Ints:
    only = np.where(kind == GRANT, _WRITE_ONLY, _WRITE_ONLY_IMM)
    opcode = np.where(first, _WRITE_FIRST, np.where(last, _WRITE_LAST_IMM, _WRITE_MIDDLE))
    opcode = np.where(first & last, only, opcode)
    return np.where(notice, _CNP, np.where(answer, _ACKNOWLEDGE, opcode))


def _seal(frame: Bytes, wire: int) -> None:
    """Append the invariant CRC (InfiniBand Architecture, annex A17.3.3)."""
    masked = frame[ETHERNET : wire - ICRC].copy()
    masked[[1, 8, 10, 11, IPV4 + 6, IPV4 + 7, IPV4 + UDP + 4]] = 0xFF
    crc = zlib.crc32(masked.tobytes(), zlib.crc32(b"\xff" * 8))
    frame[wire - ICRC : wire] = np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
