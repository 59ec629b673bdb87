"""Counter-based random numbers: a draw is a hash of what it is for, so order never matters.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, kernel

# Purposes: two uses of the same numbers must differ in one.
SWITCH_PORT, HOST_LABEL, TIE, ECN, SHUFFLE, FAILURE, RECOVERY = range(1, 8)


@inlined
def mixed(x: Int) -> Int:
    """uint64 from uint64, a bijection."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def draw(seed: Int, purpose: Int, what: Int, number: Int) -> Int:
    """uint64: the number-th draw for `what` (a packet key, a pointer) and this purpose."""
    x = mixed(np.uint64(seed) ^ (np.uint64(purpose) << np.uint64(56)))
    x = mixed(x ^ np.uint64(what))
    return mixed(x ^ np.uint64(number))


@inlined
def below(random: Int, n: Int) -> Int:
    """int64 in 0 .. n-1 from the upper half of a draw; n < 2**31."""
    return np.int64(((random >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@inlined
def drawn(seed: Int, purpose: Int, what: Int, number: Int, n: Int) -> Int:
    """int64 in 0 .. n-1: `draw` and `below` in one, which Python may call too."""
    return below(draw(seed, purpose, what, number), n)


@kernel
def shuffle_each(seed: Int, purpose: Int, what: Int, start: Int, order: Int) -> None:
    """order[start[i] : start[i + 1]] becomes 0 .. n-1 in an order drawn for what[i].

    Fisher's and Yates' shuffle. what: int64[m], start: int64[m + 1], order: int64[start[m]].
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
def drawn_each(seed: Int, purpose: Int, what: Int, number: Int, n: Int, out: Int) -> None:
    """out[i] = drawn(seed, purpose, what[i], number, n[i]); int64 arrays of one length."""
    for i in range(len(what)):
        out[i] = drawn(seed, purpose, what[i], number, n[i])
