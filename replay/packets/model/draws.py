"""All randomness of strategies, hosts, links and failures.

During a run a random number is a hash of its purpose and identity (`drawn`), so neither the order
of events nor the number of threads matters. Draws before a run use `generator`.
The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from ....kernels.kernel import Int, Ints, inlined, kernel

SWITCH_PORT, HOST_LABEL, TIE, ECN, SHUFFLE, FAILURE, JITTER, VICTIM = range(1, 9)
"""Purposes that several files share; a strategy declares its own with `purpose`."""

_ROUNDS = 6
"""Of `permuted`, at most 8."""


def purpose(name: str) -> int:
    """The purpose of this name, a hash of it: two uses of the same numbers differ in their purpose.

    From 2**8 to 2**63 - 1, so that it differs from the shared purposes.
    """
    digest = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 | 1 << 8


def generator(*what: int) -> np.random.Generator:
    """A random stream for draws before a run, from a seed and numbers of the purpose."""
    return np.random.default_rng(what)


@inlined
def finalized(x: np.uint64) -> np.uint64:
    """uint64 from uint64, a bijection that keeps 0."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def mixed(x: Int) -> np.uint64:
    """uint64 from uint64, a bijection."""
    return finalized(np.uint64(x) + np.uint64(0x9E3779B97F4A7C15))


@inlined
def draw(seed: Int, purpose: Int, what: Int, number: Int) -> np.uint64:
    """uint64: the number-th draw for `what` (a packet key, a pointer) and this purpose."""
    use = np.uint64(purpose)
    x = mixed(np.uint64(seed) ^ (use << np.uint64(56) | use >> np.uint64(8)))
    x = mixed(x ^ np.uint64(what))
    return mixed(x ^ np.uint64(number))


@inlined
def drawn_in_turn(seed: Int, flow: Int, count: Int, n: Int) -> Int:
    """int64 in 0 .. n-1: the count-th draw of the host of a flow, for any purpose; n <= 2**31."""
    x = finalized(np.uint64(seed) ^ np.uint64(0x9E3779B97F4A7C15))
    x = finalized(x + np.uint64(flow) * np.uint64(0x9E3779B97F4A7C15))
    x = finalized(x + np.uint64(count) * np.uint64(0xD1B54A32D192ED03))
    return below(x, n)


@inlined
def below(random: np.uint64, n: Int) -> Int:
    """int64 in 0 .. n-1 from the upper half of a draw; n < 2**31."""
    return np.int64(((random >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@inlined
def drawn(seed: Int, purpose: Int, what: Int, number: Int, n: Int) -> Int:
    """int64 in 0 .. n-1: `draw` and `below` together; can also be called from Python."""
    return below(draw(seed, purpose, what, number), n)


@inlined
def permuted(seed: Int, purpose: Int, what: Int, place: Int, n: Int) -> Int:
    """int64 in 0 .. n-1: what is at `place` (0 .. n-1) of a random order of `what`; n <= 2**31.

    A Feistel network permutes the numbers below a power of 4, at least 64, because fewer rounds or
    halves of two bits favour some orders; those from n on are permuted again (cycle walking: Black
    and Rogaway, CT-RSA 2002).
    """
    half = np.int64(3)
    while np.int64(1) << (2 * half) < n:
        half += 1
    mask = (np.int64(1) << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(_ROUNDS):
            random = draw(seed, purpose, what, (right << np.int64(3)) | np.int64(turn))
            left, right = right, left ^ (np.int64(random >> np.uint64(32)) & mask)
        place = (left << half) | right
        if place < n:
            return place


@kernel
def shuffle_each(seed: Int, purpose: Int, what: Ints, start: Ints, order: Ints) -> None:
    """Set order[start[i] : start[i + 1]] to 0 .. n-1, shuffled for what[i].

    Shuffle of Fisher and Yates. what: int64[m], start: int64[m + 1], order: int64[start[m]].
    """
    for i in range(len(what)):
        begin, size = start[i], start[i + 1] - start[i]
        for j in range(size):
            order[begin + j] = j
        for j in range(size - 1, 0, -1):
            k = drawn(seed, purpose, what[i], j, j + 1)
            other = order[begin + k]
            order[begin + k] = order[begin + j]
            order[begin + j] = other


@kernel
def drawn_each(seed: Int, purpose: Int, what: Ints, number: Int, n: Ints, out: Ints) -> None:
    """out[i] = drawn(seed, purpose, what[i], number, n[i]); int64 arrays of one length."""
    for i in range(len(what)):
        out[i] = drawn(seed, purpose, what[i], number, n[i])
