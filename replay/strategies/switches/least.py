"""The choice of the port with the lowest level, a measure of the strategy."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.draws import TIE, drawn

NONE = -1
"""Keep no port."""


def scratch_levels(fabric: Fabric) -> Ints:
    """A table of the state: scratch space for the levels of the links of one group."""
    return np.zeros(int(np.diff(fabric.forwarding.group_start).max(initial=1)), np.int64)


@inlined
def random_least(
    state: Ints, levels: Int, size: Int, seed: Int, what: Int, where: Int, kept: Int
) -> Int:
    """Position of the lowest of `size` >= 1 levels from state[levels] on.

    On ties `kept` if it is among the lowest, else a random position, drawn for (what, where).
    """
    best, equal = state[levels], np.int64(1)
    for i in range(1, size):
        level = state[levels + i]
        if level < best:
            best, equal = level, np.int64(1)
        elif level == best:
            equal += 1
    if 0 <= kept < size and state[levels + kept] == best:
        return kept
    skip = drawn(seed, TIE, what, where, equal)
    for i in range(size):
        if state[levels + i] == best:
            if skip == 0:
                return np.int64(i)
            skip -= 1
    return np.int64(0)
