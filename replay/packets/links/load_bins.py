"""Loads of links over time: bytes by the time at which they are on their way onto the link.

A packet's bytes are spread evenly over its service, so no link carries more in a stretch than its
rate allows. Both drivers count alike, packet by packet, in the order in which they come to it.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, subkernel
from ..model.run_state import LOAD_BIN_PS


def filled(loads: Ints) -> Ints:
    """The stretches up to the last one with a byte."""
    return loads[: int(np.flatnonzero(loads.any(1)).max(initial=-1)) + 1]


@subkernel
def add_load(loads: Ints, counts: Ints, link: Int, size: Int, start: Int, service: Int) -> None:
    """`size` bytes, at most 65,535, that are served from `start` on for so many ps.

    Byte boundaries are rounded at the same times whatever the stretches are, so the order of
    packets, and when stretches were joined, change nothing.
    """
    last = start + max(service - 1, np.int64(0))
    while last // counts[LOAD_BIN_PS] >= len(loads):
        _join(loads, counts)
    length = counts[LOAD_BIN_PS]
    at, before = start // length, np.int64(0)
    while at < last // length:
        sent = size * ((at + 1) * length - start) // service
        loads[at, link] += sent - before
        before = sent
        at += 1
    loads[at, link] += size - before


@subkernel
def _join(loads: Ints, counts: Ints) -> None:
    """Two stretches become one."""
    half = len(loads) // 2
    for at in range(len(loads)):
        for link in range(loads.shape[1]):
            if at < half:
                loads[at, link] = loads[2 * at, link] + loads[2 * at + 1, link]
            else:
                loads[at, link] = 0
    counts[LOAD_BIN_PS] *= 2
