"""The one pass over the frames: link layer, IP, UDP, BTH, extension headers, one row."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, inlined, kernel
from ..wire import packets
from ..wire.bth import KNOWN, MRC, MRC_FIRST, OPCODE_CLASS, REQUEST, TRANSPORT_OF
from ..wire.frames import FrameColumns
from ..wire.packets import COLUMNS, I64, U8, PacketTable
from ..wire.registry import IPV4_MAPPED, EndpointArrays, has_room, intern
from . import headers, outcomes
from .control import pause_frame
from .counters import CounterArrays
from .extensions import SCRATCH_BYTES, icrc
from .headers import (
    BTH_BYTES,
    ICRC_BYTES,
    LAYOUT,
    LAYOUT_SHIFT_OF_TSETH,
    be16,
    be32,
    be64,
    byte,
    ipv4,
    ipv6,
    link_layer,
    may_carry_frames,
)
from .mrc import looks_like_mrc

# Reusable memory for the columns of packet tables.

if TYPE_CHECKING:
    Columns = PacketTable
else:
    # Kernels take named tuples, not dataclasses.
    Columns = namedtuple("Columns", [c.name for c in COLUMNS])

_STAGGER_BYTES = 576
"""Columns start at different page offsets, otherwise all share a few cache sets."""
_MOST_HELD = 4
"""Buffers that a pool keeps."""


class _Held:
    """A buffer and the columns in it."""

    __slots__ = ("buffer", "columns", "idle", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.buffer = np.empty(sum(_aligned(rows * c.dtype.itemsize) for c in COLUMNS), np.uint8)
        arrays: list[NDArray[Any]] = []
        at = 0
        for c in COLUMNS:
            size = rows * c.dtype.itemsize
            arrays.append(self.buffer[at : at + size].view(c.dtype))
            at += _aligned(size)
        self.columns = Columns(*arrays)
        self.idle = self.references()
        """Reference count of the buffer when only this object refers to it."""

    def references(self) -> int:
        return sys.getrefcount(self.buffer)


class ColumnPool:
    """Provides writable columns; reuses their memory when nothing refers to it any longer.

    A table may be kept as long as needed: its memory is reused only after the table and every view
    of its columns are gone, detected by the reference count of the buffer. Not thread-safe.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def take(self, rows: int) -> Columns:
        """Columns of at least `rows` rows, uninitialised; pass on only those of `table_of`."""
        for held in self._held:
            if held.references() <= held.idle:
                if held.rows >= rows:
                    return held.columns
                self._held.remove(held)
                break
        held = _Held(rows)
        if len(self._held) < _MOST_HELD:
            self._held.append(held)
        return held.columns


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64 + _STAGGER_BYTES


def table_of(columns: Columns, rows: int) -> PacketTable:
    """The first `rows` rows as a packet table; views, nothing is copied."""
    return PacketTable(*(getattr(columns, c.name)[:rows] for c in COLUMNS))


ANY_ROCE, ONLY_MRC = 1, 2
"""Values of `roce_ports`: RoCE, and RoCE if it looks like MRC. Other ports have 0."""
UD_SEND_ONLY, UD_SEND_ONLY_IMM = 0x64, 0x65
GENERAL_SERVICES_QP = 1
_SMALLEST_ETHERTYPE = 0x0600  # a smaller value is an 802.3 length


@inlined
def _udp(data: U8, at: Int, end: Int, stop: Int, fragment: Int) -> tuple[Int, Int, Int]:
    """A datagram to a RoCE port: (BTH offset or minus an outcome, end of the packet, mismatch).

    `end` is the end of the captured bytes, `stop` the end of the IP packet. A single return: with
    several, numba counts references to the arrays for every packet.
    """
    needed = headers.UDP_BYTES + BTH_BYTES
    bth = at + headers.UDP_BYTES
    packet_stop = stop
    mismatch = 0
    if stop - at < needed:
        bth = -outcomes.BAD_LENGTH
    elif end - at < needed:
        bth = -outcomes.TRUNCATED_BTH
    else:
        udp_stop = at + be16(data, at + 4)
        if udp_stop - at < needed:
            bth = -outcomes.BAD_LENGTH
        elif fragment == headers.FIRST:
            # The UDP length covers all fragments, hence the whole RoCE packet.
            mismatch = packets.LENGTH_MISMATCH if udp_stop < stop else 0
            packet_stop = udp_stop
        else:
            mismatch = packets.LENGTH_MISMATCH if udp_stop != stop else 0
            packet_stop = min(stop, udp_stop)
    return bth, packet_stop, mismatch


@kernel
def _icrc_state(
    data: U8, ip: Int, bth: Int, end: Int, stop: Int, version: Int, fragment: Int, scratch: U8
) -> Int:
    """Check the ICRC of one packet: a value of the `icrc_state` column."""
    if fragment == headers.FIRST or end < stop or stop - bth < BTH_BYTES + ICRC_BYTES:
        return packets.ICRC_TRUNCATED
    if version == 6 and bth - ip > 48:
        return packets.ICRC_UNCHECKED  # not defined for IPv6 extension headers
    at = stop - ICRC_BYTES
    stored = (
        byte(data, at)
        | (byte(data, at + 1) << 8)
        | (byte(data, at + 2) << 16)
        | (byte(data, at + 3) << 24)
    )
    if stored == icrc(data, ip, bth, at, scratch):
        return packets.ICRC_OK
    return packets.ICRC_BAD


@inlined
def _stop_at(frame: Int, row: Int, tags: Int, tap: np.uint64, note: I64) -> tuple[Int, Int, bool]:
    """End before this frame without counting it."""
    if tags > 0:
        note[tap, outcomes.VLAN_TAGGED] -= 1
    return frame, row, True


@kernel
def decode_rows(
    data: U8,
    frames: FrameColumns,
    first_frame: Int,
    first_row: Int,
    first_frame_number: Int,
    base_offset: Int,
    roce_ports: U8,
    check_icrc: bool,
    look_inside: bool,
    out: Columns,
    endpoints: EndpointArrays,
    counters: CounterArrays,
) -> tuple[Int, Int, bool]:
    """Decode frames from `first_frame` on into rows from `first_row` on.

    Returns (frames done, rows written, False). Stops before a frame when the endpoint table cannot
    hold two more addresses: the caller grows it and calls again. With `look_inside` it also stops
    at a frame that may be encapsulated and returns True as third item. `out` has a row for every
    frame; every tap is a row of the counters; roce_ports: uint8[65536].
    """
    row = first_row
    scratch = np.empty(SCRATCH_BYTES, np.uint8)
    outcome = counters.outcomes
    note = counters.notes
    for i in range(first_frame, len(frames.offset)):
        if not has_room(endpoints, 2):
            return i, row, False
        u = np.uint64(i)
        r = np.uint64(row)
        begin = frames.offset[u]
        end = begin + np.int64(frames.captured[u])
        t = np.uint64(frames.tap[u])

        ethertype, ip, vlan, tags = link_layer(data, begin, end, np.int64(frames.link_type[u]))
        if tags > 0:
            note[t, outcomes.VLAN_TAGGED] += 1
        if ethertype < 0:
            outcome[t, np.uint64(-ethertype)] += 1
            continue
        version = 6
        if ethertype == headers.ETHERTYPE_IPV4:
            version = 4
            protocol, at, stop, fragment = ipv4(data, ip, end)
        elif ethertype == headers.ETHERTYPE_IPV6 or ethertype == headers.ETHERTYPE_ROCE_V1:
            protocol, at, stop, fragment = ipv6(data, ip, end)
        else:
            if look_inside and may_carry_frames(ethertype, 0, 0):
                return _stop_at(i, row, tags, t, note)
            kind: Int = outcomes.OTHER_ETHERTYPE
            if ethertype == headers.ETHERTYPE_MAC_CONTROL:
                kind = pause_frame(
                    data,
                    ip,
                    end,
                    frames.time_ns[u],
                    first_frame_number + i,
                    counters.pause[t],
                    counters.rates[t],
                )
            outcome[t, np.uint64(kind)] += 1
            if kind == outcomes.OTHER_ETHERTYPE:
                if ethertype < _SMALLEST_ETHERTYPE:
                    ethertype = 0
                counters.ethertypes[ethertype] += 1
            continue
        if protocol < 0:
            outcome[t, np.uint64(-protocol)] += 1
            continue

        flags: Int = 0
        sport: Int = 0
        dport: Int = 0
        if ethertype == headers.ETHERTYPE_ROCE_V1:
            if protocol != headers.PROTOCOL_IB or at - ip != 40:
                outcome[t, outcomes.OTHER_ETHERTYPE] += 1
                counters.ethertypes[ethertype] += 1
                continue
            flags = packets.IPV6 | packets.ROCE_V1
            bth: Int = at
            if stop - bth < BTH_BYTES:
                outcome[t, outcomes.BAD_LENGTH] += 1
                continue
            if end - bth < BTH_BYTES:
                outcome[t, outcomes.TRUNCATED_BTH] += 1
                continue
            packet_stop: Int = stop
            note[t, outcomes.ROCE_V1_PACKETS] += 1
        else:
            if protocol != headers.PROTOCOL_UDP:
                if look_inside and fragment != headers.LATER and may_carry_frames(0, protocol, 0):
                    return _stop_at(i, row, tags, t, note)
                outcome[t, outcomes.OTHER_PROTOCOL] += 1
                counters.protocols[protocol] += 1
                continue
            if fragment == headers.LATER:
                outcome[t, outcomes.LATER_FRAGMENT] += 1
                continue
            if end - at < 4:
                outcome[t, outcomes.TRUNCATED_UDP] += 1
                continue
            sport = be16(data, at)
            dport = be16(data, at + 2)
            port = roce_ports[np.uint64(dport)]
            if port != ANY_ROCE and (port == 0 or not looks_like_mrc(data, at, end)):
                if look_inside and may_carry_frames(0, 0, dport):
                    return _stop_at(i, row, tags, t, note)
                outcome[t, outcomes.OTHER_UDP_PORT] += 1
                counters.udp_ports[np.uint64(dport)] += 1
                continue
            bth, packet_stop, flags = _udp(data, at, end, stop, fragment)
            if bth < 0:
                outcome[t, np.uint64(-bth)] += 1
                continue
            if version == 6:
                flags |= packets.IPV6
        outcome[t, outcomes.ROCE] += 1

        if version == 4:
            source = intern(np.uint64(0), np.uint64(IPV4_MAPPED | be32(data, ip + 12)), endpoints)
            destination = intern(
                np.uint64(0), np.uint64(IPV4_MAPPED | be32(data, ip + 16)), endpoints
            )
            out.flow_label[r] = 0
            out.ip_id[r] = be16(data, ip + 4)
            out.traffic_class[r] = byte(data, ip + 1)
            out.hop_limit[r] = byte(data, ip + 8)
        else:
            source = intern(be64(data, ip + 8), be64(data, ip + 16), endpoints)
            destination = intern(be64(data, ip + 24), be64(data, ip + 32), endpoints)
            first_word = be32(data, ip)
            out.flow_label[r] = first_word & 0xFFFFF
            out.ip_id[r] = 0
            out.traffic_class[r] = (first_word >> 20) & 0xFF
            out.hop_limit[r] = byte(data, ip + 7)

        opcode = byte(data, bth)
        flags1 = byte(data, bth + 1)
        word4 = be32(data, bth + 4)
        word8 = be32(data, bth + 8)
        dest_qp = word4 & 0xFFFFFF
        if OPCODE_CLASS[opcode] & KNOWN == 0:
            note[t, outcomes.UNKNOWN_OPCODES] += 1
        elif dest_qp == GENERAL_SERVICES_QP and (opcode | 1) == UD_SEND_ONLY_IMM:
            note[t, outcomes.GENERAL_SERVICES] += 1

        layout = np.int64(LAYOUT[opcode])
        if opcode >= MRC_FIRST and TRANSPORT_OF[opcode] == MRC:
            note[t, outcomes.MRC_PACKETS] += 1
            if OPCODE_CLASS[opcode] & REQUEST and word8 & (packets.TS << 8):
                layout += LAYOUT_SHIFT_OF_TSETH
        header_end = bth + (layout & 0xFF)
        # A header must be captured and inside the packet: padding of a short Ethernet frame is not
        # a header.
        readable = min(end, stop, packet_stop)
        if fragment == headers.FIRST:
            flags |= packets.FIRST_FRAGMENT
            note[t, outcomes.FIRST_FRAGMENTS] += 1
        if header_end > end:
            flags |= packets.SNAPPED
            note[t, outcomes.SNAPPED_HEADERS] += 1
        aeth: Int = 0
        position = (layout >> 8) & 0xFF
        if position != 0 and bth + position + 4 <= readable:
            aeth = be32(data, bth + position)
            flags |= packets.HAS_AETH
        dma_length: Int = 0
        position = (layout >> 16) & 0xFF
        if position != 0 and bth + position + 16 <= readable:
            dma_length = be32(data, bth + position + 12)
            flags |= packets.HAS_RETH
        src_qp: Int = 0
        position = layout >> 24
        if position != 0 and bth + position + 8 <= readable:
            src_qp = be32(data, bth + position + 4) & 0xFFFFFF
            flags |= packets.HAS_DETH
        payload = packet_stop - header_end - ((flags1 >> 4) & 3) - ICRC_BYTES
        if payload < 0:
            payload = 0
            flags |= packets.LENGTH_MISMATCH
        wire_bytes = np.int64(frames.wire[u])
        if wire_bytes < stop - begin:  # a mirror truncated the frame and stated its own length
            wire_bytes = stop - begin
            flags |= packets.LENGTH_MISMATCH
        if flags & packets.LENGTH_MISMATCH:
            note[t, outcomes.LENGTH_MISMATCHES] += 1
        state: Int = packets.ICRC_UNCHECKED
        if check_icrc:
            state = _icrc_state(data, ip, bth, end, packet_stop, version, fragment, scratch)
        note[t, np.uint64(state)] += 1

        out.time_ns[r] = frames.time_ns[u]
        out.frame_number[r] = first_frame_number + i
        out.file_offset[r] = base_offset + begin
        out.captured_bytes[r] = frames.captured[u]
        out.wire_bytes[r] = wire_bytes
        out.payload_bytes[r] = payload
        out.tap[r] = t
        out.vlan[r] = vlan
        out.src[r] = source
        out.dst[r] = destination
        out.udp_sport[r] = sport
        out.udp_dport[r] = dport
        out.opcode[r] = opcode
        out.decode_flags[r] = flags
        out.bth_offset[r] = bth - begin
        out.partition_key[r] = be16(data, bth + 2)
        out.bth_flags[r] = flags1 | ((word4 >> 24) << 8) | ((word8 >> 24) << 16)
        out.dest_qp[r] = dest_qp
        out.psn[r] = word8 & 0xFFFFFF
        out.aeth[r] = aeth
        out.dma_length[r] = dma_length
        out.src_qp[r] = src_qp
        out.path_evidence[r] = 0
        out.icrc_state[r] = state
        row += 1
    return len(frames.offset), row, False
