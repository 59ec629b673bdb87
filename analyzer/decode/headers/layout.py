"""The extension headers after the BTH, for every opcode of every transport.

Source: InfiniBand Architecture Specification volume 1, chapter 9 (opcode
table) with its annexes for XRC, RoCEv2 (CNP), flush and atomic write. MRC: docs/mrc.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire import opcodes
from ...wire.opcodes import CNP, MANUFACTURER_C0, OPCODE_CLASS, RD, UD, XRC
from ...wire.packets import U8, U32

BTH_BYTES = 12
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
    if not OPCODE_CLASS[opcode] & opcodes.KNOWN:
        return ()
    transport = opcode >> 5
    if transport == CNP:
        return ("CNPpad",)
    if transport == MANUFACTURER_C0:
        return _OF_MRC_OPERATION[opcodes.MRC_OPERATIONS[opcode & 0x1F]]
    headers = _OF_OPERATION.get(opcodes.OPERATION_NAMES[opcode & 0x1F], ())
    request = bool(OPCODE_CLASS[opcode] & opcodes.REQUEST)
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
