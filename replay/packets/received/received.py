"""The packets of a replay as seen by their receivers."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Ints
from ...generate.schedule import Packets
from ..model.model import MARKED, PS, TRIMMED, EngineResult, Workload


def received_order(result: EngineResult) -> Ints:
    """Numbers (over all messages) of the data packets that arrived untrimmed, by arrival."""
    assert result.arrived_ps is not None and result.arrived_flags is not None
    whole = (result.arrived_ps >= 0) & ((result.arrived_flags & (TRIMMED >> 56)) == 0)
    rows = np.flatnonzero(whole)
    return rows[np.argsort(result.arrived_ps[rows], kind="stable")]


def received_packets(workload: Workload, result: EngineResult) -> Packets:
    """The same packets for `write_pcap`, of a workload of queue pairs (`from_queue_pairs`)."""
    order = received_order(result)
    assert result.arrived_ps is not None and result.arrived_flags is not None
    message = np.searchsorted(workload.packet_start, order, side="right") - 1
    flow = workload.flow[message].astype(np.int64)
    return Packets(
        time_ns=result.arrived_ps[order] // PS,
        pair=flow,
        number=order - workload.packet_start[workload.flow_start[flow]],
        is_ack=np.zeros(len(order), np.bool_),
        marked=(result.arrived_flags[order] & (MARKED >> 56)) != 0,
    )
