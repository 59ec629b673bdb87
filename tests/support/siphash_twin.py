"""SipHash-2-4 in plain integers, for any message and key."""

from __future__ import annotations

_64 = (1 << 64) - 1


def siphash24(message: bytes, k0: int, k1: int) -> int:
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def left(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & _64

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, first, second in (
                (0, 1, 13, 32),
                (2, 3, 16, 0),
                (0, 3, 21, 0),
                (2, 1, 17, 32),
            ):
                v[a] = (v[a] + v[b]) & _64
                v[b] = left(v[b], first) ^ v[a]
                v[a] = left(v[a], second) if second else v[a]

    whole = len(message) // 8 * 8
    tail = message[whole:].ljust(7, b"\0") + bytes([len(message) & 0xFF])
    for at in range(0, whole + 8, 8):
        word = int.from_bytes((message[:whole] + tail)[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
