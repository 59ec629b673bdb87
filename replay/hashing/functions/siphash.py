"""SipHash-2-4 of the flow keys Linux hashes, under many seeds.

The first three words of a key hold no address and no port (see linux.py), so
nearly always all units share them: their rounds are done once per seed. The
loop over the units holds no branch and becomes vector instructions.
Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012);
Linux lib/siphash.c, net/ipv4/route.c (fib_multipath_hash_construct_key).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ....kernels.kernel import Int32s, UInt32s, UInt64s, inlined, kernel

State: TypeAlias = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@inlined
def rotated_left(x: np.uint64, bits: int) -> np.uint64:
    """A 64-bit word turned left by 1 to 63 bits."""
    return np.uint64((x << np.uint64(bits)) | (x >> np.uint64(64 - bits)))


@inlined
def sip_round(state: State) -> State:
    """One SipRound."""
    v0, v1, v2, v3 = state
    v0 = v0 + v1
    v2 = v2 + v3
    v1 = rotated_left(v1, 13) ^ v0
    v3 = rotated_left(v3, 16) ^ v2
    v0 = rotated_left(v0, 32)
    v2 = v2 + v1
    v0 = v0 + v3
    v1 = rotated_left(v1, 17) ^ v2
    v3 = rotated_left(v3, 21) ^ v0
    v2 = rotated_left(v2, 32)
    return v0, v1, v2, v3


@inlined
def compress(state: State, word: np.uint64) -> State:
    """The state after one more word of the message."""
    v0, v1, v2, v3 = sip_round(sip_round((state[0], state[1], state[2], state[3] ^ word)))
    return v0 ^ word, v1, v2, v3


@inlined
def finish(state: State) -> np.uint64:
    """The 64-bit hash of the state after the last word."""
    half = sip_round(sip_round((state[0], state[1], state[2] ^ np.uint64(0xFF), state[3])))
    v0, v1, v2, v3 = sip_round(sip_round(half))
    return np.uint64((v0 ^ v1) ^ (v2 ^ v3))


@inlined
def seeded(key: np.uint64) -> State:
    """The first state under a key of two equal halves, as Linux makes it from its seed."""
    return (
        key ^ np.uint64(0x736F6D6570736575),
        key ^ np.uint64(0x646F72616E646F6D),
        key ^ np.uint64(0x6C7967656E657261),
        key ^ np.uint64(0x7465646279746573),
    )


@inlined
def _prefix(seed: np.uint64, first_word: np.uint64) -> State:
    """The state after the first word of a key and two words of zeros."""
    half, zero = seed & np.uint64(0xFFFFFFFF), np.uint64(0)
    state = compress(seeded(np.uint64((half << np.uint64(32)) | half)), first_word)
    return compress(compress(state, zero), zero)


@kernel
def prefix_states(seeds: UInt64s, first_word: np.uint64, out: UInt64s) -> None:
    """out[s] = the four state words under seeds[s] after first_word, 0, 0.

    uint64[m] (of which the low 32 bits count), uint64[m, 4].
    """
    for s in range(len(seeds)):
        out[s, 0], out[s, 1], out[s, 2], out[s, 3] = _prefix(seeds[s], first_word)


@inlined
def _rest(state: State, words: UInt64s, i: int, ipv6: bool) -> np.uint64:
    """The hash of a key of 48 bytes, or of 72 bytes with IPv6, from its fourth word on."""
    state = compress(compress(compress(state, words[0, i]), words[1, i]), words[2, i])
    if ipv6:
        state = compress(compress(compress(state, words[3, i]), words[4, i]), words[5, i])
    return finish(compress(state, np.uint64((72 if ipv6 else 48) << 56)))


@kernel
def hash_all(states: UInt64s, words: UInt64s, out: UInt32s) -> None:
    """out[s, i] = low 32 bits: uint64[m, 4], uint64[3 or 6, n], uint32[m, n]."""
    ipv6 = words.shape[0] == 6
    for s in range(len(states)):
        state = states[s, 0], states[s, 1], states[s, 2], states[s, 3]
        for i in range(words.shape[1]):
            out[s, i] = np.uint32(_rest(state, words, i, ipv6))


@kernel
def hash_at(states: UInt64s, which: Int32s, words: UInt64s, out: UInt32s) -> None:
    """out[r, i] for its own state per value, states[which[r, i]].

    uint64[m, 4], int32[r, n], uint64[3 or 6, n], uint32[r, n].
    """
    ipv6 = words.shape[0] == 6
    for r in range(which.shape[0]):
        for i in range(words.shape[1]):
            w = which[r, i]
            state = states[w, 0], states[w, 1], states[w, 2], states[w, 3]
            out[r, i] = np.uint32(_rest(state, words, i, ipv6))


@kernel
def hash_each(
    seeds: UInt64s, which: Int32s, first_words: UInt64s, words: UInt64s, out: UInt32s
) -> None:
    """The same for keys whose first words differ: nothing is shared.

    uint64[m], int32[r, n], uint64[n], uint64[3 or 6, n], uint32[r, n].
    """
    ipv6 = words.shape[0] == 6
    for r in range(which.shape[0]):
        for i in range(words.shape[1]):
            state = _prefix(seeds[which[r, i]], first_words[i])
            out[r, i] = np.uint32(_rest(state, words, i, ipv6))
