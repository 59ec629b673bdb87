"""Decodes frames into packet tables, in one pass."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, UInt64s, inlined, kernel
from ..capture.rings import ConcatenatedCapture
from ..capture.source import Capture
from ..errors import UsageError
from ..wire import packets
from ..wire.bth import KNOWN, MRC, MRC_FIRST, OPCODE_CLASS, REQUEST, ROCE_UDP_PORT, TRANSPORT_OF
from ..wire.packets import (
    COLUMNS,
    I64,
    LINKTYPE_ETHERNET,
    U8,
    FrameBatch,
    FrameColumns,
    PacketTable,
)
from ..wire.registry import IPV4_MAPPED, EndpointArrays, Registry, has_room, intern
from ..wire.taps import MANY_TAPS
from . import headers, outcomes
from .control import CmMessage, cm_messages, pause_frame
from .counters import CounterArrays, DecodeCounters
from .extensions import SCRATCH_BYTES, icrc
from .grants import MOST_GRANT_BYTES, WRITE_ONLY, grant_rows
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
    looks_like_roce,
    may_carry_frames,
)
from .links import ETHERTYPE_LLDP, MOST_LINKS, Links, hash_of_pair, note_advertised
from .mrc import MRC_UDP_PORT, FlowLabelOf, FlowLabels, looks_like_mrc, mrc_rows, number_paths
from .sessions import MAX_SESSIONS
from .sflow import note_samples
from .tunnel_patterns import WITH_OUTER_IPV6, WITH_RATE, WITH_VLAN
from .tunnels import looks_like_vxlan
from .unwrapping import Unwrapper, room_for, rows_of

if TYPE_CHECKING:
    from .mirrors import Mirrors


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
    if fragment == headers.UNSIZED:
        return packets.ICRC_UNCHECKED  # the packet on the wire had another IP header
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
    addresses: UInt64s,
    scratch: U8,
) -> tuple[Int, Int, bool]:
    """Decode frames from `first_frame` on into rows from `first_row` on.

    Returns (frames done, rows written, False). Stops before a frame when the endpoint table cannot
    hold two more addresses: the caller grows it and calls again. With `look_inside` it also stops
    at a frame that may be encapsulated and returns True as third item. `out` has a row for every
    frame; every tap is a row of the counters; roce_ports: uint8[65536]. addresses,
    uint64[2]: a hash of the Ethernet addresses of the first row, 0 before it, and 1 where another
    row has others. scratch: uint8[SCRATCH_BYTES].
    """
    row = first_row
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
        frame_stop = max(end, begin + np.int64(frames.wire[u]))
        if ethertype == headers.ETHERTYPE_IPV4:
            version = 4
            protocol, at, stop, fragment = ipv4(data, ip, end, frame_stop)
        elif ethertype == headers.ETHERTYPE_IPV6 or ethertype == headers.ETHERTYPE_ROCE_V1:
            protocol, at, stop, fragment = ipv6(data, ip, end, frame_stop)
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
                if look_inside and (
                    may_carry_frames(0, 0, dport)
                    or looks_like_vxlan(data, at + headers.UDP_BYTES, end)
                ):
                    return _stop_at(i, row, tags, t, note)
                outcome[t, outcomes.OTHER_UDP_PORT] += 1
                counters.udp_ports[np.uint64(dport)] += 1
                counters.roce_like[np.uint64(dport)] += looks_like_roce(data, at, end)
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
        elif fragment == headers.UNSIZED:
            note[t, outcomes.UNSIZED_PACKETS] += 1
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
            if opcode == WRITE_ONLY and dma_length <= MOST_GRANT_BYTES:
                note[t, outcomes.SMALL_WRITES] += 1
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

        if frames.link_type[u] == LINKTYPE_ETHERNET:
            pair = hash_of_pair(data, begin)
            if pair != addresses[0]:
                addresses[1] = np.uint64(addresses[0] != np.uint64(0))
                addresses[0] = pair if addresses[0] == np.uint64(0) else addresses[0]
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


class Decoder:
    """Decodes batches of frames in sequence, from one thread at a time.

    udp_ports: UDP destination ports that carry RoCE; MRC_UDP_PORT, unless it is among them, counts
    only for packets that look like MRC. trimmed_dscps: DSCPs that mark trimmed MRC packets.
    flow_label: whether MRC packets without a flow label use that of the outer IPv6 header.
    check_icrc: verify the ICRC of complete packets (fills `icrc_state`). link_bits_per_second: link
    rate for the pause times of taps that do not state their rate. mirrors: restores mirrored
    packets. by_link: each link in a tap, told by its Ethernet addresses, gets a tap of its own.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        udp_ports: Sequence[int] = (ROCE_UDP_PORT,),
        trimmed_dscps: Sequence[int] = (),
        flow_label: FlowLabelOf = "auto",
        check_icrc: bool = False,
        link_bits_per_second: int | None = None,
        mirrors: Mirrors | None = None,
        by_link: bool = True,
    ) -> None:
        self.registry = registry
        self.links = Links(registry) if by_link else None
        self._addresses = np.zeros(2, np.uint64)
        self._scratch = np.empty(SCRATCH_BYTES, np.uint8)
        self._roce_ports = np.zeros(65536, np.uint8)
        self._roce_ports[MRC_UDP_PORT] = ONLY_MRC
        for port in udp_ports:
            if not 0 < port < 65536:
                raise UsageError(f"{port} is not a UDP port, give a number from 1 to 65535")
            self._roce_ports[port] = ANY_ROCE
        self._trimmed_dscp = np.zeros(64, np.uint8)
        for dscp in trimmed_dscps:
            if not 0 <= dscp < 64:
                raise UsageError(f"{dscp} is not a DSCP, give a number from 0 to 63")
            self._trimmed_dscp[dscp] = 1
        self.flow_labels = FlowLabels(flow_label)
        self._check_icrc = check_icrc
        self._default_rate = link_bits_per_second or 0
        self._pool = ColumnPool()
        self._unwrapper = Unwrapper(registry.taps, self._roce_ports)
        self._encapsulated = False
        self.mirrors = mirrors
        self._cm: list[CmMessage] = []
        self.counters = DecodeCounters()

    def decode(self, frames: FrameBatch) -> PacketTable:
        """The RoCE packets of a batch, one row each, in its order.

        The columns are views of a buffer that is reused after the table and all views of its
        columns are gone: keep the table as long as needed, also in another thread, but take no raw
        pointers to it.
        """
        if len(frames) and int(frames.tap.max()) >= len(self.registry.taps):
            raise ValueError("a frame names a tap that is not registered")
        data = frames.data.view()
        data.flags.writeable = False  # one type for every source, hence one compiled kernel
        frames = replace(frames, data=data)
        general_services = self.counters.general_services_packets()
        mrc_packets = self.counters.mrc_packets()
        small_writes = self.counters.small_writes()
        tables, done = [], 0
        # Batches resemble each other: after one with mirrors, skip the search for the first.
        if not self._encapsulated or not len(frames):
            table, done = self._rows(frames, look_inside=True)
            if len(table) or done == len(frames):
                begin = table.file_offset - frames.base_offset
                if (frames.link_type == LINKTYPE_ETHERNET).all():
                    ethernet = begin
                else:
                    link_type = frames.link_type[table.frame_number - frames.first_frame_number]
                    ethernet = np.where(link_type == LINKTYPE_ETHERNET, begin, -1)
                tables.append(self._restored(frames, None, ethernet, table))
            del table  # without rows its memory is free for the rows of inner frames
        if done < len(frames):
            tables += self._unwrapped(frames, done)
        tables = [table for table in tables if len(table)] or tables[:1]
        table = tables[0] if len(tables) == 1 else PacketTable.concatenate(tables)
        if self.counters.general_services_packets() > general_services:
            self._cm += cm_messages(table, frames.data, frames.base_offset)
        if self.counters.mrc_packets() > mrc_packets:
            mrc = mrc_rows(table, frames.data, frames.base_offset, self._trimmed_dscp)
            if self.flow_labels.decide(table, mrc):
                mrc = mrc_rows(table, frames.data, frames.base_offset, self._trimmed_dscp)
            table = replace(table, mrc=mrc)
        if self.counters.small_writes() > small_writes:
            table = replace(table, grants=grant_rows(table, frames.data, frames.base_offset))
        return table

    def _unwrapped(self, frames: FrameBatch, first: int) -> list[PacketTable]:
        """The rows of the frames from `first`, including frames inside mirrors and tunnels."""
        tables = []
        encapsulated = self.counters.encapsulated()
        mrc_packets = self.counters.mrc_packets()
        for batch, inner, used in self._unwrapper.batches(frames, first, self.counters):
            table, _ = self._rows(batch, look_inside=False)
            if len(table) < len(inner.offset):  # rows refer to their outer frame
                inner = rows_of(inner, table.frame_number)
            np.add(inner.source, frames.first_frame_number, out=table.frame_number)
            if used & WITH_VLAN:
                np.bitwise_or(table.vlan, inner.vlan, out=table.vlan)
            if used & WITH_OUTER_IPV6 and len(table):
                number_paths(
                    self.registry.segments,
                    frames.data,
                    inner.outer_ipv6,
                    inner.offset,
                    inner.captured,
                    table.path_evidence,
                )
                if self.counters.mrc_packets() > mrc_packets:
                    self.flow_labels.see(table, frames.data, inner.outer_ipv6)
            if used & WITH_RATE:
                note_samples(table, inner.rate, self.registry.taps)
            tables.append(self._restored(frames, inner.stamp, inner.ethernet, table))
        self._encapsulated = self.counters.encapsulated() > encapsulated
        return tables

    def _restored(
        self, frames: FrameBatch, stamp: I64 | None, ethernet: I64, table: PacketTable
    ) -> PacketTable:
        """The table before the mirror, with a tap for each link."""
        if self.mirrors is not None:
            stamps = np.full(len(table), -1, np.int64) if stamp is None else stamp
            restored = self.mirrors.restored(frames, stamps, table)
            if restored is not table:  # its taps are those of the mirror
                return restored
        if (
            self.links is not None
            and len(table)
            and (stamp is not None or self._addresses[1] or not len(self.links))
        ):  # while all frames have one pair of addresses there is nothing to tell apart
            self.links.assign(table, frames.data, frames.base_offset, ethernet, self.counters)
        return table if self.mirrors is None else self.mirrors.without_duplicates(table)

    def _rows(self, frames: FrameBatch, look_inside: bool) -> tuple[PacketTable, int]:
        """The rows of a batch, and the frame at which they end because it may be encapsulated."""
        rates = [
            tap.speed_bits_per_second or self._default_rate for tap in self.registry.taps.items
        ]
        self.counters.set_rates(np.array(rates, np.int64))
        columns = self._pool.take(len(frames))
        advertised = self._advertisements()
        done: Int = 0
        rows: Int = 0
        wrapped: Int
        while True:
            done, rows, wrapped = decode_rows(
                frames.data,
                frames.columns,
                done,
                rows,
                frames.first_frame_number,
                frames.base_offset,
                self._roce_ports,
                self._check_icrc,
                look_inside,
                columns,
                self.registry.endpoints.arrays,
                self.counters.arrays,
                self._addresses,
                self._scratch,
            )
            if wrapped or done == len(frames):
                if self._advertisements() > advertised:
                    note_advertised(frames, self.registry)
                return table_of(columns, int(rows)), int(done)
            self.registry.endpoints.grow()

    def _advertisements(self) -> int:
        """Frames that may be of LLDP or CDP so far."""
        ethertypes = self.counters.arrays.ethertypes
        return int(ethertypes[ETHERTYPE_LLDP] + ethertypes[0]) if self.links is not None else 0

    def warm_up(self, nothing: FrameBatch) -> None:
        """Compile or load all machine code before the first frame; `nothing` is an empty batch."""
        data = nothing.data.view()
        data.flags.writeable = False
        self.decode(nothing)
        self._unwrapper.unwrap(replace(nothing, data=data), 0, room_for(1), 0, self.counters)

    def warnings(self, name: str) -> list[str]:
        """Warnings about mirrors, ports and lengths in the capture `name`."""
        lines = [] if self.mirrors is None else self.mirrors.warnings(name)
        if self.links is not None and self.links.overflowed:
            lines.append(
                f"{name}: more than {MOST_LINKS} links by their Ethernet addresses, or more than"
                f" {MANY_TAPS} taps in all: further links count as one tap"
            )
        lines += [f"{name}: {text}" for text in self.counters.oddities()]
        if self._unwrapper.sessions.overflowed:
            lines.append(
                f"{name}: more than {MAX_SESSIONS} mirror sessions, or more than {MANY_TAPS} taps"
                " in all: further sessions count as one tap"
            )
        return lines

    def take_cm_messages(self) -> list[CmMessage]:
        """Connection management messages of the batches since the last call, in order."""
        messages, self._cm = self._cm, []
        return messages


# One capture of an analysis: its frames as packet tables.


@dataclass(slots=True)
class Source:
    """One capture with its decoder."""

    capture: Capture | ConcatenatedCapture
    decoder: Decoder
    first_time_ns: int | None = None
    last_time_ns: int | None = None
    stopped: bool = False
    """Set to end reading."""

    def tables(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        """The packet tables of this capture, filtered."""
        tables = self._decoded(keep)
        return tables if self.decoder.mirrors is None else self.decoder.mirrors.ordered(tables)

    def _decoded(self, keep: Callable[[PacketTable], PacketTable]) -> Iterator[PacketTable]:
        for frames in self.capture.batches():
            if len(frames):
                low, high = int(frames.time_ns.min()), int(frames.time_ns.max())
                first, last = self.first_time_ns, self.last_time_ns
                self.first_time_ns = low if first is None else min(low, first)
                self.last_time_ns = high if last is None else max(high, last)
            table = keep(self.decoder.decode(frames))
            del frames  # while something refers to its bytes, the window needs a second buffer
            yield table
            del table
            if self.stopped:
                return
