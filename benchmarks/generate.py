"""Write the standard captures of the benchmarks: clean RoCEv2 traffic of any size, fast.

Every connection sends WRITEs of 8 packets with 1,024 bytes of payload, each message is
acknowledged. Odd connections spray their requests over 8 UDP source ports, even ones keep
the port Linux derives from the two QPNs (rdma_flow_label_to_udp_sport). One data packet in
97 is CE-marked. PSNs start anywhere, nothing is lost, reordered or sent twice, IP checksums
and (in frames captured whole) ICRCs are right. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

PAYLOAD = 1024
MESSAGE_PACKETS = 8
CYCLE = MESSAGE_PACKETS + 1  # a message and its ACK
SPRAY_PORTS = 8
CE_EVERY = 97
START_NS = 1_700_000_000_000_000_000
SPACING_NS = 100
CHUNK_BYTES = 30_000_000

RECORD_HEADER, ETHERNET, IPV4, UDP, BTH, RETH, AETH, ICRC = 16, 14, 20, 8, 12, 16, 4, 4
IP_AT = RECORD_HEADER + ETHERNET
UDP_AT = IP_AT + IPV4
BTH_AT = UDP_AT + UDP
AFTER_BTH = BTH_AT + BTH

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACK = 0x06, 0x07, 0x08, 0x11
DSCP_ECT0, DSCP_CE = 26 << 2 | 2, 26 << 2 | 3

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def linux_source_port(local_qp: Ints, remote_qp: Ints) -> Ints:
    """UDP source port of a queue pair: rdma_calc_flow_label and its fold to 0xC000-0xFFFF."""
    v = local_qp * remote_qp
    v ^= v >> 20
    v ^= v >> 40
    v &= 0xFFFFF
    return ((v & 0x3FFF) ^ ((v & 0xFC000) >> 14)) | 0xC000


@dataclass(frozen=True)
class Connections:
    """What stays the same for each connection; all arrays have one entry per connection."""

    requester_ip: Ints
    responder_ip: Ints
    requester_qp: Ints
    responder_qp: Ints
    port: Ints
    first_psn: Ints
    first_ip_id: Ints

    @classmethod
    def random(cls, count: int, rng: np.random.Generator) -> Connections:
        number = np.arange(count)
        hosts = min(64, count)
        qps = 0x100 + rng.permutation(max(2 * count, 0x8000))[: 2 * count].astype(np.int64)
        return cls(
            requester_ip=0x0A000001 + number % hosts,
            responder_ip=0x0A000101 + (number * 7 + number // hosts) % hosts,
            requester_qp=qps[:count],
            responder_qp=qps[count:],
            port=linux_source_port(qps[:count], qps[count:]),
            first_psn=rng.integers(0, 1 << 24, count),
            first_ip_id=rng.integers(0, 1 << 16, count),
        )


def put(rows: Bytes, at: int, size: int, values: Ints | int) -> None:
    """Write `values` big-endian into `size` bytes of each row."""
    for i in range(size):
        rows[:, at + i] = np.asarray(values) >> (8 * (size - 1 - i)) & 0xFF


def ip_checksum(rows: Bytes) -> Ints:
    """One's complement sum of each row's IPv4 header, its checksum field being zero."""
    words = rows[:, IP_AT:UDP_AT].astype(np.int64)
    total = (words[:, 0::2] << 8 | words[:, 1::2]).sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.uint32)


def icrc(frames: Bytes) -> NDArray[np.uint32]:
    """Invariant CRC of equally long frames, uint8[n, bytes], without their last four bytes."""
    masked = frames[:, ETHERNET:-ICRC].copy()
    masked[:, [1, 8, 10, 11]] = 0xFF  # TOS, TTL, header checksum
    masked[:, [IPV4 + 6, IPV4 + 7]] = 0xFF  # UDP checksum
    masked[:, IPV4 + UDP + 4] = 0xFF  # FECN, BECN, reserved
    table = crc_table()
    state = np.full(len(frames), 0xDEBB20E3, np.uint32)  # after eight bytes of ones
    for column in masked.T:
        state = table[(state ^ column) & 0xFF] ^ state >> np.uint32(8)
    return ~state


class Schedule:
    """Which packet of which connection comes when: round-robin, messages out of step."""

    def __init__(self, connections: int, rng: np.random.Generator) -> None:
        self.connections = connections
        self.late_start = rng.integers(0, CYCLE, connections)

    def rounds(self, first: int, count: int) -> tuple[Ints, Ints]:
        """(connection, step of that connection) of every packet in some rounds, in order."""
        connection = np.tile(np.arange(self.connections), count)
        round_number = np.repeat(np.arange(first, first + count), self.connections)
        step = round_number - self.late_start[connection]
        started = step >= 0
        return connection[started], step[started]


def frames(
    c: Connections, connection: Ints, step: Ints, number: Ints, rng: np.random.Generator, snap: int
) -> tuple[Bytes, Ints]:
    """Record headers and frames as uint8[n, 16 + snap], and the bytes of each row that count."""
    position = step % CYCLE
    message = step // CYCLE
    is_ack = position == MESSAGE_PACKETS
    is_first = position == 0
    is_last = position == MESSAGE_PACKETS - 1
    n = len(step)

    after_bth = np.where(is_ack, AETH, PAYLOAD + RETH * is_first) + ICRC
    wire = ETHERNET + IPV4 + UDP + BTH + after_bth
    captured = np.minimum(wire, snap)
    time_ns = START_NS + number * SPACING_NS + rng.integers(0, SPACING_NS // 2, n)
    sprays = (connection % 2 == 1) & ~is_ack
    marked = ~is_ack & (number % CE_EVERY == 0)
    psn = c.first_psn[connection] + message * MESSAGE_PACKETS
    psn += np.minimum(position, MESSAGE_PACKETS - 1)  # the ACK names the last packet

    rows = np.zeros((n, RECORD_HEADER + snap), np.uint8)
    header = np.stack([time_ns // 10**9, time_ns % 10**9, captured, wire], axis=1)
    rows[:, :RECORD_HEADER] = header.astype("<u4").view(np.uint8)

    requester_ip, responder_ip = c.requester_ip[connection], c.responder_ip[connection]
    src = np.where(is_ack, responder_ip, requester_ip)
    dst = np.where(is_ack, requester_ip, responder_ip)
    put(rows, RECORD_HEADER, 6, 0x020000000000 + dst)
    put(rows, RECORD_HEADER + 6, 6, 0x020000000000 + src)
    put(rows, RECORD_HEADER + 12, 2, 0x0800)
    rows[:, IP_AT] = 0x45
    rows[:, IP_AT + 1] = np.where(marked, DSCP_CE, DSCP_ECT0)
    put(rows, IP_AT + 2, 2, wire - ETHERNET)
    put(rows, IP_AT + 4, 2, c.first_ip_id[connection] + step)
    put(rows, IP_AT + 6, 2, 0x4000)  # do not fragment
    rows[:, IP_AT + 8] = 64
    rows[:, IP_AT + 9] = 17
    put(rows, IP_AT + 12, 4, src)
    put(rows, IP_AT + 16, 4, dst)
    put(rows, IP_AT + 10, 2, ip_checksum(rows))
    port = c.port[connection]
    spray = 0xC000 | (port + 97 * rng.integers(0, SPRAY_PORTS, n)) & 0x3FFF
    put(rows, UDP_AT, 2, np.where(sprays, spray, port))
    put(rows, UDP_AT + 2, 2, 4791)
    put(rows, UDP_AT + 4, 2, wire - ETHERNET - IPV4)

    opcode = np.where(is_last, WRITE_LAST, np.where(is_ack, ACK, WRITE_MIDDLE))
    rows[:, BTH_AT] = np.where(is_first, WRITE_FIRST, opcode)
    put(rows, BTH_AT + 2, 2, 0xFFFF)
    put(
        rows,
        BTH_AT + 5,
        3,
        np.where(is_ack, c.requester_qp[connection], c.responder_qp[connection]),
    )
    rows[:, BTH_AT + 8] = np.where(is_last, 0x80, 0)  # AckReq
    put(rows, BTH_AT + 9, 3, psn)
    rows[:, AFTER_BTH:] = 0x5A
    put_headers_after_bth(rows, is_ack, is_first, message)
    for size in np.unique(wire[wire <= snap]):  # frames captured whole
        chosen = np.flatnonzero(wire == size)
        end = RECORD_HEADER + size
        value = icrc(rows[chosen, RECORD_HEADER:end])
        rows[chosen, end - ICRC : end] = value.astype("<u4")[:, None].view(np.uint8)
    return rows, RECORD_HEADER + captured


def put_headers_after_bth(
    rows: Bytes, is_ack: NDArray[np.bool_], is_first: NDArray[np.bool_], message: Ints
) -> None:
    """AETH of the ACKs (credits invalid, MSN) and RETH of the first packets."""
    acks = rows[is_ack]
    put(acks, AFTER_BTH, 1, 0x1F)
    put(acks, AFTER_BTH + 1, 3, message[is_ack] + 1)
    rows[is_ack] = acks
    firsts = rows[is_first]
    put(firsts, AFTER_BTH, 8, 0x7F0000000000 + message[is_first] * MESSAGE_PACKETS * PAYLOAD)
    put(firsts, AFTER_BTH + 8, 4, 0x1234)
    put(firsts, AFTER_BTH + 12, 4, MESSAGE_PACKETS * PAYLOAD)
    rows[is_first] = firsts


def write(
    file: BinaryIO, packets: int, connections: int = 64, snap: int = 96, seed: int = 1
) -> None:
    """Write a nanosecond pcap of exactly `packets` frames, captured to `snap` bytes each.

    `snap` 0 captures whole frames. Memory does not grow with `packets`.
    """
    longest = ETHERNET + IPV4 + UDP + BTH + RETH + PAYLOAD + ICRC
    snap = snap or longest
    if not ETHERNET + IPV4 + UDP + BTH + RETH <= snap <= longest:
        raise ValueError(f"snap must be 0 or 70 to {longest}")
    rng = np.random.default_rng(seed)
    c = Connections.random(connections, rng)
    schedule = Schedule(connections, rng)
    file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, 1))
    rounds_at_once = max(1, CHUNK_BYTES // (snap * connections))
    first_round = written = 0
    while written < packets:
        connection, step = schedule.rounds(first_round, rounds_at_once)
        connection, step = connection[: packets - written], step[: packets - written]
        number = np.arange(written, written + len(step))
        rows, used = frames(c, connection, step, number, rng, snap)
        file.write(rows[np.arange(rows.shape[1]) < used[:, None]].tobytes())
        first_round += rounds_at_once
        written += len(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--packets", type=int, default=2_000_000)
    parser.add_argument("--connections", type=int, default=64, help="each has two one-way flows")
    parser.add_argument("--snap", type=int, default=96, help="bytes kept per frame, 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    options: Any = parser.parse_args()
    with open(options.output, "wb") as file:
        write(file, options.packets, options.connections, options.snap, options.seed)


if __name__ == "__main__":
    main()
