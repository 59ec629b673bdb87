"""The headers of a packet from the link layer to the extensions after the BTH."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, inlined
from ..wire import bth, packets
from ..wire.bth import CNP, KNOWN, MANUFACTURER_C0, OPCODE_CLASS, RD, UD, XRC
from ..wire.packets import U8, U32
from .outcomes import BAD_IP_HEADER, BAD_VLAN, TRUNCATED_IP, TRUNCATED_LINK, UNKNOWN_LINK_TYPE

# Big-endian loads from a byte array, for kernels.
#
# The index is unsigned so that numba emits no test for negative indices; LLVM then merges the byte
# loads into one unaligned load with a byte swap. Results are int64 (uint64 for eight bytes), so
# that no mix of signedness turns into float64. The caller has checked that all bytes lie inside the
# frame.


@inlined
def byte(data: U8, at: Int) -> Int:
    return np.int64(data[np.uint64(at)])


@inlined
def be16(data: U8, at: Int) -> Int:
    """Two bytes, most significant first."""
    i = np.uint64(at)
    return (np.int64(data[i]) << 8) | np.int64(data[i + np.uint64(1)])


@inlined
def be32(data: U8, at: Int) -> Int:
    """Four bytes, most significant first."""
    i = np.uint64(at)
    value = (
        (np.uint32(data[i]) << np.uint32(24))
        | (np.uint32(data[i + np.uint64(1)]) << np.uint32(16))
        | (np.uint32(data[i + np.uint64(2)]) << np.uint32(8))
        | np.uint32(data[i + np.uint64(3)])
    )
    return np.int64(np.uint32(value))


@inlined
def be64(data: U8, at: Int) -> np.uint64:
    """Eight bytes, most significant first, as uint64."""
    i = np.uint64(at)
    return (
        (np.uint64(data[i]) << np.uint64(56))
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(8))
        | np.uint64(data[i + np.uint64(7)])
    )


# Decodes the link layer and IP, up to the transport header.
#
# Each function checks the captured length before it reads and returns a tuple; a negative first
# member is minus the outcome (outcomes.py) of a frame that cannot be read further.
#
# Sources: IEEE 802.1Q, tcpdump.org/linktypes.html, RFC 791, RFC 8200.

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_ROCE_V1 = 0x8915
ETHERTYPE_MAC_CONTROL = 0x8808
ETHERTYPE_MPLS, ETHERTYPE_MPLS_UPSTREAM = 0x8847, 0x8848
ETHERTYPE_TIMESTAMP = 0xD28B  # Arista's, between the addresses and the frame's own EtherType
ETHERTYPE_VLAN = 0x8100
ETHERTYPE_QINQ = 0x88A8
ETHERTYPE_QINQ_OLD = 0x9100  # before 802.1ad, still found on switches
ETHERTYPE_QINQ_OLD_2, ETHERTYPE_QINQ_OLD_3 = 0x9200, 0x9300
MAX_VLAN_TAGS = 4
ETHERTYPE_VN_TAG, ETHERTYPE_E_TAG, ETHERTYPE_CISCO_METADATA = 0x8926, 0x893F, 0x8909
ETHERTYPE_HSR, ETHERTYPE_R_TAG = 0x892F, 0xF1C1  # IEC 62439-3, 802.1CB
ETHERTYPE_NSH = 0x894F
ETHERTYPE_FABRICPATH, ETHERTYPE_TRILL, ETHERTYPE_PBB = 0x8903, 0x22F3, 0x88E7

PROTOCOL_UDP = 17
PROTOCOL_IB = 0x1B
PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_GRE = 4, 41, 47
PROTOCOL_MPLS, PROTOCOL_ETHERNET = 137, 143  # RFC 4023, RFC 8986
UDP_BYTES = 8
BTH_BYTES = 12
DEFAULT_PARTITION = 0xFFFF
"""Partition key of full members; RoCE knows no other partition."""
VXLAN_PORT, GENEVE_PORT, SFLOW_PORT, UET_PORT = 4789, 6081, 6343, 4793
VXLAN_GPE_PORT, MPLS_PORT, GTP_PORT = 4790, 6635, 2152
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
MAX_EXTENSION_HEADERS = 8

# Fragment states. UNSIZED: whole, with 0 as its IP length, as hosts capture large segments before
# the adapter divides them; the length is that of the frame.
WHOLE, FIRST, LATER, UNSIZED = 0, 1, 2, 3


@inlined
def may_carry_frames(ethertype: Int, protocol: Int, port: Int) -> bool:
    """Whether a frame other than RoCE may be encapsulated.

    Arguments: EtherType, IP protocol (0 without) and UDP destination port (0 without).
    """
    return bool(
        protocol in (PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_MPLS, PROTOCOL_ETHERNET)
        or port in (VXLAN_PORT, GENEVE_PORT, SFLOW_PORT, UET_PORT)
        or port in (VXLAN_GPE_PORT, MPLS_PORT, GTP_PORT)
        or ethertype in (ETHERTYPE_MPLS, ETHERTYPE_MPLS_UPSTREAM, ETHERTYPE_TIMESTAMP)
        or ethertype in (ETHERTYPE_VN_TAG, ETHERTYPE_E_TAG, ETHERTYPE_CISCO_METADATA)
        or ethertype in (ETHERTYPE_HSR, ETHERTYPE_R_TAG, ETHERTYPE_NSH)
        or ethertype in (ETHERTYPE_FABRICPATH, ETHERTYPE_TRILL, ETHERTYPE_PBB)
    )


@inlined
def looks_like_roce(data: U8, at: Int, end: Int) -> bool:
    """Whether the datagram with its UDP header at `at` has a BTH: opcode, version, partition."""
    bth = at + UDP_BYTES
    if end - bth < BTH_BYTES:
        return False
    known = OPCODE_CLASS[byte(data, bth)] & KNOWN != 0 and byte(data, bth + 1) & 0x0F == 0
    return bool(known and be16(data, bth + 2) | 0x8000 == DEFAULT_PARTITION)


@inlined
def link_layer(data: U8, at: Int, end: Int, link_type: Int) -> tuple[Int, Int, Int, Int]:
    """(EtherType, where its payload begins, innermost TCI, VLAN tags) of a frame."""
    if link_type == packets.LINKTYPE_ETHERNET:
        if end - at < 14:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at + 12)
        at += 14
    elif link_type == packets.LINKTYPE_LINUX_SLL:
        if end - at < 16:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at + 14)
        at += 16
    elif link_type == packets.LINKTYPE_LINUX_SLL2:
        if end - at < 20:
            return -TRUNCATED_LINK, at, 0, 0
        ethertype = be16(data, at)
        at += 20
    elif link_type == packets.LINKTYPE_IPV4:
        return ETHERTYPE_IPV4, at, 0, 0
    elif link_type == packets.LINKTYPE_IPV6:
        return ETHERTYPE_IPV6, at, 0, 0
    elif link_type == packets.LINKTYPE_RAW:
        if end - at < 1:
            return -TRUNCATED_IP, at, 0, 0
        version = byte(data, at) >> 4
        if version == 4:
            return ETHERTYPE_IPV4, at, 0, 0
        if version == 6:
            return ETHERTYPE_IPV6, at, 0, 0
        return -BAD_IP_HEADER, at, 0, 0
    else:
        return -UNKNOWN_LINK_TYPE, at, 0, 0
    vlan: Int = 0
    tags = 0
    while ethertype in (
        ETHERTYPE_VLAN,
        ETHERTYPE_QINQ,
        ETHERTYPE_QINQ_OLD,
        ETHERTYPE_QINQ_OLD_2,
        ETHERTYPE_QINQ_OLD_3,
    ):
        if tags == MAX_VLAN_TAGS:
            return -BAD_VLAN, at, vlan, tags
        if end - at < 4:
            return -TRUNCATED_LINK, at, vlan, tags
        vlan = be16(data, at)
        ethertype = be16(data, at + 2)
        at += 4
        tags += 1
    return ethertype, at, vlan, tags


@inlined
def ipv4(data: U8, at: Int, end: Int, frame_stop: Int) -> tuple[Int, Int, Int, Int]:
    """(protocol, where its header begins, where the IP packet ends, fragment state).

    frame_stop: end of the frame on the wire, and of a packet with 0 as its length; `at` if such a
    packet is not plausible.
    """
    if end - at < 20:
        return -TRUNCATED_IP, at, at, WHOLE
    version_length = byte(data, at)
    header_bytes = (version_length & 0x0F) * 4
    total_bytes = be16(data, at + 2)
    state = WHOLE
    if total_bytes == 0:
        total_bytes = frame_stop - at
        state = UNSIZED
    if version_length >> 4 != 4 or header_bytes < 20 or total_bytes < header_bytes:
        return -BAD_IP_HEADER, at, at, WHOLE
    if end - at < header_bytes:
        return -TRUNCATED_IP, at, at, WHOLE
    fragment = be16(data, at + 6)
    if fragment & 0x1FFF:
        state = LATER
    elif fragment & 0x2000:
        state = FIRST
    return byte(data, at + 9), at + header_bytes, at + total_bytes, state


@inlined
def ipv6(data: U8, at: Int, end: Int, frame_stop: Int) -> tuple[Int, Int, Int, Int]:
    """As `ipv4`; also the GRH of RoCEv1, which has the same layout.

    Of a packet with 0 as its length only the transport header right after the IPv6 header is read.
    """
    if end - at < 40:
        return -TRUNCATED_IP, at, at, WHOLE
    if byte(data, at) >> 4 != 6:
        return -BAD_IP_HEADER, at, at, WHOLE
    payload_bytes = be16(data, at + 4)
    stop = at + 40 + payload_bytes
    protocol = byte(data, at + 6)
    at += 40
    state = WHOLE
    if payload_bytes == 0 and (protocol == PROTOCOL_UDP or protocol == PROTOCOL_IB):
        stop = max(frame_stop, stop)
        state = UNSIZED
    seen = 0
    while (
        protocol == HOP_BY_HOP
        or protocol == ROUTING
        or protocol == DESTINATION_OPTIONS
        or protocol == FRAGMENT
    ):
        if seen == MAX_EXTENSION_HEADERS:
            return -BAD_IP_HEADER, at, stop, state
        if end - at < 8:
            return -TRUNCATED_IP, at, stop, state
        length = 8
        if protocol == FRAGMENT:
            fragment = be16(data, at + 2)
            if fragment & 0xFFF8:
                # The middle of a datagram follows, not a header.
                return byte(data, at), at + 8, stop, LATER
            if fragment & 1:
                state = FIRST
        else:
            length = (byte(data, at + 1) + 1) * 8
        if end - at < length:
            return -TRUNCATED_IP, at, stop, state
        protocol = byte(data, at)
        at += length
        seen += 1
    if at > stop:
        return -BAD_IP_HEADER, at, stop, state
    return protocol, at, stop, state


# The extension headers after the BTH, for every opcode of every transport.
#
# Source: InfiniBand Architecture Specification volume 1, chapter 9 (opcode table) with its annexes
# for XRC, RoCEv2 (CNP), flush and atomic write. MRC: docs/mrc.md.

ICRC_BYTES = 4
HEADER_BYTES: Final = {
    "RDETH": 4,
    "XRCETH": 4,
    "DETH": 8,
    "RETH": 16,
    "AtomicETH": 28,
    "AETH": 4,
    "AtomicAckETH": 8,
    "ImmDt": 4,
    "IETH": 4,
    "FETH": 4,
    "CNPpad": 16,
    "METH": 4,
    "TSETH": 4,
    "SETH": 28,
    "CC_STATE": 8,
    "NETH": 20,
    "PETH": 16,
    "ERTH": 16,
    "EETH": 36,
}
TSETH_BYTES = 4
"""TSETH follows the METH of an MRC WRITE whose BTH has the TS bit; the tables below exclude it."""

# Extension headers per operation, independent of the transport.
_OF_OPERATION: Final[dict[str, tuple[str, ...]]] = {
    "SEND_LAST_IMM": ("ImmDt",),
    "SEND_ONLY_IMM": ("ImmDt",),
    "WRITE_FIRST": ("RETH",),
    "WRITE_LAST_IMM": ("ImmDt",),
    "WRITE_ONLY": ("RETH",),
    "WRITE_ONLY_IMM": ("RETH", "ImmDt"),
    "READ_REQUEST": ("RETH",),
    "READ_RESPONSE_FIRST": ("AETH",),
    "READ_RESPONSE_LAST": ("AETH",),
    "READ_RESPONSE_ONLY": ("AETH",),
    "ACK": ("AETH",),
    "ATOMIC_ACK": ("AETH", "AtomicAckETH"),
    "COMPARE_SWAP": ("AtomicETH",),
    "FETCH_ADD": ("AtomicETH",),
    "SEND_LAST_INV": ("IETH",),
    "SEND_ONLY_INV": ("IETH",),
    "FLUSH": ("FETH", "RETH"),
    "ATOMIC_WRITE": ("RETH",),
}

_OF_MRC_OPERATION: Final[dict[str, tuple[str, ...]]] = {
    "WRITE_FIRST": ("METH", "RETH"),
    "WRITE_MIDDLE": ("METH", "RETH"),
    "WRITE_LAST": ("METH", "RETH"),
    "WRITE_LAST_IMM": ("METH", "RETH", "ImmDt"),
    "WRITE_ONLY": ("METH", "RETH"),
    "WRITE_ONLY_IMM": ("METH", "RETH", "ImmDt"),
    "ACK": ("AETH",),
    "ENDPOINT_REQUEST": ("ERTH",),
    "ENDPOINT_RESPONSE": ("EETH",),
    "SACK": ("SETH", "CC_STATE"),
    "NACK": ("NETH",),
    "PROBE": ("PETH",),
}


def extension_headers(opcode: int) -> tuple[str, ...]:
    """Names of the extension headers after the BTH, in order; () for unknown opcodes."""
    if not OPCODE_CLASS[opcode] & bth.KNOWN:
        return ()
    transport = opcode >> 5
    if transport == CNP:
        return ("CNPpad",)
    if transport == MANUFACTURER_C0:
        return _OF_MRC_OPERATION[bth.MRC_OPERATIONS[opcode & 0x1F]]
    headers = _OF_OPERATION.get(bth.OPERATION_NAMES[opcode & 0x1F], ())
    request = bool(OPCODE_CLASS[opcode] & bth.REQUEST)
    first: tuple[str, ...] = ()
    if transport == RD:
        first = ("RDETH", "DETH") if request else ("RDETH",)
    elif transport == UD:
        first = ("DETH",)
    elif transport == XRC and request:
        first = ("XRCETH",)
    return first + headers


def header_offset(opcode: int, header: str) -> int:
    """Bytes from the BTH to `header`; 0 when the opcode does not have it."""
    at = BTH_BYTES
    for name in extension_headers(opcode):
        if name == header:
            return at
        at += HEADER_BYTES[name]
    return 0


def offsets_of(header: str) -> U8:
    """uint8[256]: `header_offset` of each opcode."""
    return np.array([header_offset(opcode, header) for opcode in range(256)], np.uint8)


def _header_length(opcode: int) -> int:
    return BTH_BYTES + sum(HEADER_BYTES[name] for name in extension_headers(opcode))


HEADER_LENGTH: Final[U8] = np.array([_header_length(op) for op in range(256)], np.uint8)
"""uint8[256]: bytes of the BTH and the opcode's extension headers."""


def _packed() -> NDArray[np.uint32]:
    columns = (HEADER_LENGTH, offsets_of("AETH"), offsets_of("RETH"), offsets_of("DETH"))
    packed = np.zeros(256, np.uint32)
    for position, column in enumerate(columns):
        packed |= column.astype(np.uint32) << np.uint32(8 * position)
    return packed


LAYOUT: Final[U32] = _packed()
"""uint32[256]: header length | AETH offset << 8 | RETH offset << 16 | DETH offset << 24."""
LAYOUT_SHIFT_OF_TSETH: Final = TSETH_BYTES | TSETH_BYTES << 16
"""Offset that a TSETH adds to the LAYOUT of an MRC WRITE: it precedes the RETH."""
