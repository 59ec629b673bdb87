"""Packet sequence numbers: 24 bits, all arithmetic modulo 2^24."""

from __future__ import annotations

from .kernel import inlined

PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
PSN_HALF = 1 << (PSN_BITS - 1)


@inlined
def psn_add(psn: int, count: int) -> int:
    """`psn` moved on by `count`, which may be negative."""
    return (psn + count) & PSN_MASK


@inlined
def psn_distance(psn: int, origin: int) -> int:
    """How far `psn` lies beyond `origin`: -2^23 to 2^23 - 1, negative when before it."""
    return ((psn - origin + PSN_HALF) & PSN_MASK) - PSN_HALF


@inlined
def id_distance(ip_id: int, origin: int) -> int:
    """The same for the 16-bit IPv4 identification."""
    return ((ip_id - origin + 0x8000) & 0xFFFF) - 0x8000
