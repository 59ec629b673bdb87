"""Packet sequence numbers: 24 bits, all arithmetic modulo 2^24."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Array, Int, Ints, inlined

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
