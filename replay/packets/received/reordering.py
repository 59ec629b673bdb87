"""Reordering of data packets at their receivers, without the analyzer's state per flow."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Ints, kernel
from ....kernels.named import NamedTuple
from ..model.model import TRIMMED, EngineResult, Workload

_WHOLE_MASK = TRIMMED >> 56


class Order(NamedTuple):
    """Of all flows together."""

    packets: int
    """Data packets that arrived whole."""
    reordered: int
    """Packets that arrived after a packet of their flow with a higher number (RFC 4737, 3)."""
    max_extent: int
    """Most arrivals since the first such packet (RFC 4737, 4.2.2); 0 without reordering."""


def reordering(workload: Workload, result: EngineResult) -> Order:
    """Needs a run with `keep_arrivals`. Packets of a flow are numbered in order of their
    messages; a retransmitted packet keeps its number."""
    assert result.arrived_ps is not None and result.arrived_flags is not None
    found = np.zeros(len(Order._fields), np.int64)
    first = workload.packet_start[workload.flow_start].astype(np.int64)
    _count(first, result.arrived_ps, result.arrived_flags, found)
    return Order(*found.tolist())


@kernel
def _count(first: Ints, arrived_ps: Ints, flags: Bytes, found: Ints) -> None:
    """first: int64[F + 1], number of the first packet of each flow; found: the fields of Order."""
    for flow in range(len(first) - 1):
        begin, end = first[flow], first[flow + 1]
        soonest = np.int64((1 << 63) - 1)  # of the packets with higher numbers
        late = np.int64(0)
        for packet in range(end - 1, begin - 1, -1):
            time = arrived_ps[packet]
            if time < 0 or flags[packet] & _WHOLE_MASK:
                continue
            found[0] += 1
            if time > soonest:
                late += 1
            else:
                soonest = time
        if not late:
            continue
        found[1] += late
        order = np.argsort(arrived_ps[begin:end], kind="mergesort")
        highest = np.empty(end - begin, np.int64)  # packets with a higher number than all before
        position = np.empty(end - begin, np.int64)
        records, arrivals = np.int64(0), np.int64(0)
        for number in order:
            if arrived_ps[begin + number] < 0 or flags[begin + number] & _WHOLE_MASK:
                continue
            if records == 0 or number > highest[records - 1]:
                highest[records], position[records] = number, arrivals
                records += 1
            else:
                low, high = np.int64(0), records - 1
                while low < high:
                    middle = (low + high) // 2
                    if highest[middle] > number:
                        high = middle
                    else:
                        low = middle + 1
                found[2] = max(found[2], arrivals - position[low])
            arrivals += 1
