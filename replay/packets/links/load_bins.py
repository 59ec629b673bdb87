"""Links over time: bytes by the time of their transmission, and longest queues.

The bytes of a packet are spread evenly over its service time, so no link exceeds its rate in an
interval. Both drivers count packet by packet; their order does not matter. `loads` has a column of
bytes for every link, then a column of queues for every link.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, subkernel
from ..model.records import Records


def filled(loads: Ints) -> Ints:
    """The intervals up to the last interval with a byte."""
    return loads[: int(np.flatnonzero(loads.any(1)).max(initial=-1)) + 1]


@subkernel
def add_load(loads: Ints, counts: Records, link: Int, size: Int, start: Int, service: Int) -> None:
    """Count `size` bytes, at most 65,535, served from `start` on for `service` ps.

    The rounding of bytes does not depend on the intervals, so neither the order of packets nor the
    time at which intervals are joined changes the result.
    """
    last = start + max(service - 1, np.int64(0))
    while last // counts[0].load_bin_ps >= len(loads):
        _join(loads, counts)
    length = counts[0].load_bin_ps
    at, before = start // length, np.int64(0)
    while at < last // length:
        sent = size * ((at + 1) * length - start) // service
        loads[at, link] += sent - before
        before = sent
        at += 1
    loads[at, link] += size - before


@subkernel
def add_queue(loads: Ints, counts: Records, link: Int, queued: Int, time: Int) -> None:
    """A packet that has to wait makes the queue of a link `queued` bytes long at `time`."""
    while time // counts[0].load_bin_ps >= len(loads):
        _join(loads, counts)
    at, column = time // counts[0].load_bin_ps, loads.shape[1] // 2 + link
    loads[at, column] = max(loads[at, column], queued)


@subkernel
def _join(loads: Ints, counts: Records) -> None:
    """Join pairs of intervals."""
    half = len(loads) // 2
    for at in range(len(loads)):
        for link in range(loads.shape[1]):
            if at < half:
                first, second = loads[2 * at, link], loads[2 * at + 1, link]
                carried = link < loads.shape[1] // 2
                loads[at, link] = first + second if carried else max(first, second)
            else:
                loads[at, link] = 0
    counts[0].load_bin_ps *= 2
