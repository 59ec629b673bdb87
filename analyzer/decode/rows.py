"""The one pass over the frames: link layer, IP, UDP, BTH, extension headers, one row."""

from __future__ import annotations

from typing import Final

import numpy as np

from .. import packets
from ..endpoints import IPV4_MAPPED, EndpointArrays, has_room, intern
from ..kernel import inlined, kernel
from ..opcodes import KNOWN, OPCODE_CLASS
from ..packets import I64, U8, U16, U32
from . import outcomes
from .columns import Columns
from .counters import CounterArrays
from .headers import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_MAC_CONTROL,
    ETHERTYPE_ROCE_V1,
    FIRST,
    LATER,
    PROTOCOL_IB,
    PROTOCOL_UDP,
    ipv4,
    ipv6,
    link_layer,
)
from .icrc import icrc
from .layout import BTH_BYTES, ICRC_BYTES, LAYOUT
from .load import be16, be32, be64, byte
from .pause import pause_frame

UDP_BYTES = 8
UD_SEND_ONLY, UD_SEND_ONLY_IMM = 0x64, 0x65
GENERAL_SERVICES_QP = 1
_SMALLEST_ETHERTYPE = 0x0600  # below, the field is an 802.3 length

IPV6: Final = packets.IPV6
ROCE_V1: Final = packets.ROCE_V1
FIRST_FRAGMENT: Final = packets.FIRST_FRAGMENT
SNAPPED: Final = packets.SNAPPED
HAS_AETH: Final = packets.HAS_AETH
HAS_RETH: Final = packets.HAS_RETH
HAS_DETH: Final = packets.HAS_DETH
LENGTH_MISMATCH: Final = packets.LENGTH_MISMATCH


@inlined
def _transport(
    data: U8, at: int, end: int, stop: int, fragment: int, roce_ports: U8
) -> tuple[int, int, int]:
    """From UDP to the BTH: (BTH offset or minus an outcome, where the packet ends, mismatch).

    `end` is the end of the captured bytes, `stop` that of the IP packet.
    """
    if end - at < 4:
        return -outcomes.TRUNCATED_UDP, stop, 0
    if roce_ports[be16(data, at + 2)] == 0:
        return -outcomes.OTHER_UDP_PORT, stop, 0
    if stop - at < UDP_BYTES + BTH_BYTES:
        return -outcomes.BAD_LENGTH, stop, 0
    if end - at < UDP_BYTES + BTH_BYTES:
        return -outcomes.TRUNCATED_BTH, stop, 0
    udp_length = be16(data, at + 4)
    if udp_length < UDP_BYTES + BTH_BYTES:
        return -outcomes.BAD_LENGTH, stop, 0
    udp_stop = at + udp_length
    mismatch = 0
    if fragment == FIRST:
        # The UDP length spans all fragments: that of the whole RoCE packet.
        if udp_stop < stop:
            mismatch = LENGTH_MISMATCH
        return at + UDP_BYTES, udp_stop, mismatch
    if udp_stop != stop:
        mismatch = LENGTH_MISMATCH
    return at + UDP_BYTES, min(stop, udp_stop), mismatch


@kernel
def _icrc_state(
    data: U8, ip: int, bth: int, end: int, stop: int, version: int, fragment: int, scratch: U8
) -> int:
    """Compare the stored ICRC of one packet: a value of the `icrc_state` column."""
    if fragment == FIRST or end < stop or stop - bth < BTH_BYTES + ICRC_BYTES:
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


@kernel
def decode_rows(
    data: U8,
    offset: I64,
    captured: U32,
    wire: U32,
    time_ns: I64,
    tap: U16,
    link_type: U16,
    first_frame: int,
    first_row: int,
    first_frame_number: int,
    base_offset: int,
    roce_ports: U8,
    check_icrc: bool,
    out: Columns,
    endpoints: EndpointArrays,
    counters: CounterArrays,
) -> tuple[int, int]:
    """Decode frames from `first_frame` on into rows from `first_row` on.

    Gives (frames done, rows written). Stops early, before the frame it names,
    when the endpoint table has no room for two more addresses; the caller grows
    it and calls again. `out` has a row for every frame; every tap is a row of
    the counters; roce_ports is uint8[65536].
    """
    row = first_row
    scratch = np.empty(128, np.uint8)
    for i in range(first_frame, len(offset)):
        if not has_room(endpoints, 2):
            return i, row
        begin = offset[i]
        end = begin + np.int64(captured[i])
        t = np.int64(tap[i])
        outcome = counters.outcomes[t]
        note = counters.notes[t]

        ethertype, ip, vlan, tags = link_layer(data, begin, end, np.int64(link_type[i]))
        if tags > 0:
            note[outcomes.VLAN_TAGGED] += 1
        if ethertype < 0:
            outcome[-ethertype] += 1
            continue
        version = 6
        if ethertype == ETHERTYPE_IPV4:
            version = 4
            protocol, at, stop, fragment = ipv4(data, ip, end)
        elif ethertype == ETHERTYPE_IPV6 or ethertype == ETHERTYPE_ROCE_V1:
            protocol, at, stop, fragment = ipv6(data, ip, end)
        else:
            kind = outcomes.OTHER_ETHERTYPE
            if ethertype == ETHERTYPE_MAC_CONTROL:
                kind = pause_frame(data, ip, end, time_ns[i], counters.pause[t], counters.rates[t])
            outcome[kind] += 1
            if kind == outcomes.OTHER_ETHERTYPE:
                if ethertype < _SMALLEST_ETHERTYPE:
                    ethertype = 0
                counters.ethertypes[ethertype] += 1
            continue
        if protocol < 0:
            outcome[-protocol] += 1
            continue

        flags = 0
        sport = 0
        dport = 0
        if ethertype == ETHERTYPE_ROCE_V1:
            if protocol != PROTOCOL_IB or fragment != 0:
                outcome[outcomes.OTHER_ETHERTYPE] += 1
                counters.ethertypes[ethertype] += 1
                continue
            flags = IPV6 | ROCE_V1
            bth = at
            if stop - bth < BTH_BYTES:
                outcome[outcomes.BAD_LENGTH] += 1
                continue
            if end - bth < BTH_BYTES:
                outcome[outcomes.TRUNCATED_BTH] += 1
                continue
            packet_stop = stop
            note[outcomes.ROCE_V1_PACKETS] += 1
        else:
            if protocol != PROTOCOL_UDP:
                outcome[outcomes.OTHER_PROTOCOL] += 1
                counters.protocols[protocol] += 1
                continue
            if fragment == LATER:
                outcome[outcomes.LATER_FRAGMENT] += 1
                continue
            bth, packet_stop, flags = _transport(data, at, end, stop, fragment, roce_ports)
            if bth < 0:
                outcome[-bth] += 1
                if bth == -outcomes.OTHER_UDP_PORT:
                    counters.udp_ports[be16(data, at + 2)] += 1
                continue
            if version == 6:
                flags |= IPV6
            sport = be16(data, at)
            dport = be16(data, at + 2)
        outcome[outcomes.ROCE] += 1

        if version == 4:
            source = intern(np.uint64(0), np.uint64(IPV4_MAPPED | be32(data, ip + 12)), endpoints)
            destination = intern(
                np.uint64(0), np.uint64(IPV4_MAPPED | be32(data, ip + 16)), endpoints
            )
            out.flow_label[row] = 0
            out.ip_id[row] = be16(data, ip + 4)
            out.traffic_class[row] = byte(data, ip + 1)
            out.hop_limit[row] = byte(data, ip + 8)
        else:
            source = intern(be64(data, ip + 8), be64(data, ip + 16), endpoints)
            destination = intern(be64(data, ip + 24), be64(data, ip + 32), endpoints)
            first_word = be32(data, ip)
            out.flow_label[row] = first_word & 0xFFFFF
            out.ip_id[row] = 0
            out.traffic_class[row] = (first_word >> 20) & 0xFF
            out.hop_limit[row] = byte(data, ip + 7)

        opcode = byte(data, bth)
        flags1 = byte(data, bth + 1)
        word4 = be32(data, bth + 4)
        word8 = be32(data, bth + 8)
        dest_qp = word4 & 0xFFFFFF
        if OPCODE_CLASS[opcode] & KNOWN == 0:
            note[outcomes.UNKNOWN_OPCODES] += 1
        elif dest_qp == GENERAL_SERVICES_QP and (opcode | 1) == UD_SEND_ONLY_IMM:
            note[outcomes.GENERAL_SERVICES] += 1

        layout = np.int64(LAYOUT[opcode])
        header_end = bth + (layout & 0xFF)
        # A header counts when it is captured and inside the packet: padding of a
        # short Ethernet frame must not be taken for one.
        readable = min(end, packet_stop)
        if fragment == FIRST:
            flags |= FIRST_FRAGMENT
            readable = min(end, stop)
            note[outcomes.FIRST_FRAGMENTS] += 1
        if header_end > end:
            flags |= SNAPPED
            note[outcomes.SNAPPED_HEADERS] += 1
        aeth = 0
        position = (layout >> 8) & 0xFF
        if position != 0 and bth + position + 4 <= readable:
            aeth = be32(data, bth + position)
            flags |= HAS_AETH
        dma_length = 0
        position = (layout >> 16) & 0xFF
        if position != 0 and bth + position + 16 <= readable:
            dma_length = be32(data, bth + position + 12)
            flags |= HAS_RETH
        src_qp = 0
        position = layout >> 24
        if position != 0 and bth + position + 8 <= readable:
            src_qp = be32(data, bth + position + 4) & 0xFFFFFF
            flags |= HAS_DETH
        payload = packet_stop - header_end - ((flags1 >> 4) & 3) - ICRC_BYTES
        if payload < 0:
            payload = 0
            flags |= LENGTH_MISMATCH
        wire_bytes = np.int64(wire[i])
        if wire_bytes < stop - begin:  # a mirror cut the frame and told its own length
            wire_bytes = stop - begin
            flags |= LENGTH_MISMATCH
        if flags & LENGTH_MISMATCH:
            note[outcomes.LENGTH_MISMATCHES] += 1
        state = packets.ICRC_UNCHECKED
        if check_icrc:
            state = _icrc_state(data, ip, bth, end, packet_stop, version, fragment, scratch)
        note[state] += 1

        out.time_ns[row] = time_ns[i]
        out.frame_number[row] = first_frame_number + i
        out.file_offset[row] = base_offset + begin
        out.captured_bytes[row] = captured[i]
        out.wire_bytes[row] = wire_bytes
        out.payload_bytes[row] = payload
        out.tap[row] = t
        out.vlan[row] = vlan
        out.src[row] = source
        out.dst[row] = destination
        out.udp_sport[row] = sport
        out.udp_dport[row] = dport
        out.opcode[row] = opcode
        out.decode_flags[row] = flags
        out.bth_offset[row] = bth - begin
        out.partition_key[row] = be16(data, bth + 2)
        out.bth_flags[row] = flags1 | ((word4 >> 24) << 8) | ((word8 >> 24) << 16)
        out.dest_qp[row] = dest_qp
        out.psn[row] = word8 & 0xFFFFFF
        out.aeth[row] = aeth
        out.dma_length[row] = dma_length
        out.src_qp[row] = src_qp
        out.path_evidence[row] = 0
        out.icrc_state[row] = state
        row += 1
    return len(offset), row
