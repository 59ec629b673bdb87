"""The base transport header (BTH): opcodes, packet sequence numbers, the UDP port."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Array, Int, Ints, inlined

# BTH opcodes: names, transports and their role in the PSN order.
#
# Source: InfiniBand Architecture Specification volume 1, chapter 9 (BTH opcode table); transport in
# the top three bits, operation in the low five. MRC (OCP Multipath Reliable Connection 1.0) takes
# twelve opcodes of the block 0xC0 to 0xDF, which the standard leaves to manufacturers; docs/mrc.md
# names the sources of its layouts.

RC, UC, RD, UD, CNP, XRC, MANUFACTURER_C0, MANUFACTURER_E0 = range(8)
MRC = 8
"""Transport number of the opcodes of 0xC0 to 0xDF that are MRC's; the others stay 6."""
TRANSPORT_NAMES: Final = ("RC", "UC", "RD", "UD", "CNP", "XRC", "C0", "E0", "MRC")

OPERATION_NAMES: Final = {
    0x00: "SEND_FIRST",
    0x01: "SEND_MIDDLE",
    0x02: "SEND_LAST",
    0x03: "SEND_LAST_IMM",
    0x04: "SEND_ONLY",
    0x05: "SEND_ONLY_IMM",
    0x06: "WRITE_FIRST",
    0x07: "WRITE_MIDDLE",
    0x08: "WRITE_LAST",
    0x09: "WRITE_LAST_IMM",
    0x0A: "WRITE_ONLY",
    0x0B: "WRITE_ONLY_IMM",
    0x0C: "READ_REQUEST",
    0x0D: "READ_RESPONSE_FIRST",
    0x0E: "READ_RESPONSE_MIDDLE",
    0x0F: "READ_RESPONSE_LAST",
    0x10: "READ_RESPONSE_ONLY",
    0x11: "ACK",
    0x12: "ATOMIC_ACK",
    0x13: "COMPARE_SWAP",
    0x14: "FETCH_ADD",
    0x15: "RESYNC",
    0x16: "SEND_LAST_INV",
    0x17: "SEND_ONLY_INV",
    0x1C: "FLUSH",
    0x1D: "ATOMIC_WRITE",
}

MRC_OPERATIONS: Final = {
    **{operation: OPERATION_NAMES[operation] for operation in (*range(0x06, 0x0C), 0x11)},
    0x18: "ENDPOINT_REQUEST",
    0x19: "ENDPOINT_RESPONSE",
    0x1C: "SACK",
    0x1D: "NACK",
    0x1E: "PROBE",
}
MRC_FIRST = 0xC0
"""Lowest opcode of MRC: most packets need no table lookup."""
MRC_ACK, MRC_ENDPOINT_REQUEST, MRC_ENDPOINT_RESPONSE = 0xD1, 0xD8, 0xD9
MRC_SACK, MRC_NACK, MRC_PROBE = 0xDC, 0xDD, 0xDE

_RC_OPERATIONS = frozenset(OPERATION_NAMES) - {0x15}
_OPERATIONS_OF: Final = {
    RC: _RC_OPERATIONS,
    UC: frozenset(range(0x0C)),
    RD: frozenset(range(0x16)) | {0x1C},
    UD: frozenset((0x04, 0x05)),
    CNP: frozenset((0x01,)),
    XRC: _RC_OPERATIONS,
    MANUFACTURER_C0: frozenset(MRC_OPERATIONS),
}


def opcode_name(opcode: int) -> str:
    """`RC_WRITE_FIRST` for 0x06, `CNP` for 0x81, `0xc0` for an opcode without a known use."""
    transport, operation = opcode >> 5, opcode & 0x1F
    if operation not in _OPERATIONS_OF.get(transport, ()):
        return f"0x{opcode:02x}"
    if transport == CNP:
        return "CNP"
    if transport == MANUFACTURER_C0:
        return f"MRC_{MRC_OPERATIONS[operation]}"
    return f"{TRANSPORT_NAMES[transport]}_{OPERATION_NAMES[operation]}"


# Class of an opcode, bits of OPCODE_CLASS[opcode]. Zero: neither standard nor MRC.
KNOWN = 0x001
REQUEST = 0x002  # takes a PSN of its sender's request space
READ_REQUEST = 0x004
RESPONSE_DATA = 0x008  # READ response or atomic ACK: a PSN of the other side's request space, once
ACKNOWLEDGE = 0x010  # ACK, NAK or RNR NAK
BEGINS = 0x020  # first packet of a message or READ response (First, Only)
ENDS = 0x040  # last packet of a message or READ response (Last, Only)
FULL = 0x080  # First or Middle: its payload is one path MTU
SEQUENCED = 0x100  # PSNs are consecutive in its space (RC, UC, XRC)
ATOMIC = 0x200
MARKS_RESENDS = 0x400  # the packet marks retransmissions (MRC's RTX bit)


def _classify(opcode: int) -> int:
    transport, operation = opcode >> 5, opcode & 0x1F
    if operation not in _OPERATIONS_OF.get(transport, ()):
        return 0
    bits = KNOWN
    if transport == CNP:
        return bits
    is_mrc = transport == MANUFACTURER_C0
    name = MRC_OPERATIONS[operation] if is_mrc else OPERATION_NAMES[operation]
    if name == "ACK" or opcode == MRC_SACK:
        bits |= ACKNOWLEDGE
    elif is_mrc and not name.startswith("WRITE"):
        return bits
    elif name.startswith("READ_RESPONSE") or name == "ATOMIC_ACK":
        bits |= RESPONSE_DATA
    else:
        bits |= REQUEST
    if transport in (
        RC,
        UC,
        XRC,
        MANUFACTURER_C0,
    ):  # the PSNs of RD belong to an EE context, not to the QP
        bits |= SEQUENCED
    if name == "READ_REQUEST":
        bits |= READ_REQUEST
    if name in ("COMPARE_SWAP", "FETCH_ADD"):
        bits |= ATOMIC
    if "_FIRST" in name or "_MIDDLE" in name:
        bits |= FULL
    if is_mrc and not bits & ACKNOWLEDGE:
        bits |= MARKS_RESENDS
    if not bits & ACKNOWLEDGE:
        if "_MIDDLE" not in name and "_LAST" not in name:
            bits |= BEGINS
        if "_FIRST" not in name and "_MIDDLE" not in name:
            bits |= ENDS
    return bits


OPCODE_CLASS: Final[NDArray[np.uint16]] = np.array([_classify(op) for op in range(256)], np.uint16)
"""The class bits of each opcode, uint16[256]."""

TRANSPORT_OF: Final[NDArray[np.uint8]] = np.array(
    [MRC if op >> 5 == MANUFACTURER_C0 and OPCODE_CLASS[op] else op >> 5 for op in range(256)],
    np.uint8,
)
"""The transport of each opcode, an index of TRANSPORT_NAMES, uint8[256]."""

CARRIES_DATA: Final[NDArray[np.bool_]] = (
    (OPCODE_CLASS & ACKNOWLEDGE == 0)
    & ((TRANSPORT_OF != MRC) | (OPCODE_CLASS & MARKS_RESENDS != 0))
    & (TRANSPORT_OF != CNP)
)
"""bool[256]: requests, and data of READs; not ACKs, NAKs, control packets of MRC and CNPs. A FIM
of flows counts the flows with such packets."""

# AETH syndrome (byte), bits 6..5 and the NAK codes in bits 4..0.
SYNDROME_KIND_MASK = 0x60
SYNDROME_ACK = 0x00
SYNDROME_RNR_NAK = 0x20
SYNDROME_NAK = 0x60
NAK_NAMES: Final = {
    0x60: "PSN sequence error",
    0x61: "invalid request",
    0x62: "remote access error",
    0x63: "remote operational error",
    0x64: "invalid RD request",
}


# Packet sequence numbers: 24 bits, all arithmetic modulo 2^24.

PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
PSN_HALF = 1 << (PSN_BITS - 1)


@inlined
def psn_add(psn: Int, count: Int) -> Int:
    """`psn` moved on by `count`, which may be negative."""
    return (psn + count) & PSN_MASK


@inlined
def psn_distance(psn: Int, origin: Int) -> Int:
    """How far `psn` lies beyond `origin`: -2^23 to 2^23 - 1, negative when before it."""
    return ((psn - origin + PSN_HALF) & PSN_MASK) - PSN_HALF


def unwrapped(psn: Array) -> Ints:
    """PSNs in order of time without the wrap at 2^24, from 0 on."""
    numbers: Ints = psn.astype(np.int64)
    steps = (np.diff(numbers, prepend=numbers[:1]) + PSN_HALF & PSN_MASK) - PSN_HALF
    return np.asarray(np.cumsum(steps))


@inlined
def id_distance(ip_id: Int, origin: Int) -> Int:
    """The same for the 16-bit IPv4 identification."""
    return ((ip_id - origin + 0x8000) & 0xFFFF) - 0x8000


# The UDP destination port of RoCEv2 (IANA: roce).

ROCE_UDP_PORT = 4791
