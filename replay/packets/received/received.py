"""The packets of a replay as seen by their receivers, for the measures of the analyzer."""

from __future__ import annotations

import numpy as np

from ....analyzer.measures.measuring import Measuring
from ....analyzer.results.flow import Flow
from ....analyzer.summary.summarize import Summary
from ....analyzer.wire.packets import PacketTable
from ....analyzer.wire.ports import ROCE_UDP_PORT
from ....analyzer.wire.registry import Registry
from ....analyzer.wire.taps import Tap
from ....kernels.kernel import Ints
from ...fabrics.fabric import Fabric
from ...generate.pcap_writer import START_NS
from ...generate.schedule import Packets
from ..model.model import MARKED, PS, TRIMMED, EngineResult, Workload

_FIRST, _MIDDLE, _LAST, _ONLY = 0x00, 0x01, 0x02, 0x04
"""Opcodes of SEND on a reliable connection."""
_ECT0, _CE = 2, 3
_FIRST_QP = 0x100
_HEADERS = 14 + 20 + 8 + 12 + 4


def received_order(result: EngineResult) -> Ints:
    """Numbers (over all messages) of the data packets that arrived untrimmed, by arrival."""
    assert result.arrived_ps is not None and result.arrived_flags is not None
    whole = (result.arrived_ps >= 0) & ((result.arrived_flags & (TRIMMED >> 56)) == 0)
    rows = np.flatnonzero(whole)
    return rows[np.argsort(result.arrived_ps[rows], kind="stable")]


def received_table(workload: Workload, result: EngineResult) -> PacketTable:
    """Data packets by arrival; needs a run with `keep_arrivals`. Addresses are host numbers, and
    flow f is queue pair 0x100 + f with PSNs from 0."""
    order = received_order(result)
    assert result.arrived_ps is not None and result.arrived_flags is not None
    message = np.searchsorted(workload.packet_start, order, side="right") - 1
    flow = workload.flow[message]
    number = order - workload.packet_start[message]
    last = number == workload.packets[message] - 1
    table = PacketTable.zeros(len(order))
    table.time_ns[:] = START_NS + result.arrived_ps[order] // PS
    table.frame_number[:] = np.arange(1, len(order) + 1)
    size = workload.sizes_of(order, message)
    table.wire_bytes[:] = size
    table.captured_bytes[:] = size
    table.payload_bytes[:] = np.maximum(0, size - _HEADERS)
    table.src[:], table.dst[:] = workload.src[flow], workload.dst[flow]
    unit = workload.units_of(order, message)
    table.udp_sport[:], table.udp_dport[:] = 0xC000 | (unit & 0x3FFF), ROCE_UDP_PORT
    marked = (result.arrived_flags[order] & (MARKED >> 56)) != 0
    table.traffic_class[:] = np.where(marked, _CE, _ECT0)
    single = workload.packets[message] == 1
    opcode = np.where(number == 0, _FIRST, np.where(last, _LAST, _MIDDLE))
    table.opcode[:] = np.where(single, _ONLY, opcode)
    table.dest_qp[:] = (_FIRST_QP + flow) & 0xFFFFFF
    of_flow = order - workload.packet_start[workload.flow_start[flow]]
    table.psn[:] = of_flow & 0xFFFFFF
    table.ip_id[:] = of_flow & 0xFFFF
    return table


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


def received_flows(workload: Workload, result: EngineResult, fabric: Fabric) -> list[Flow]:
    """The flows of the received packets, as the analyzer measures them."""
    registry = Registry()
    for host in range(fabric.hosts):
        registry.endpoints.add(str(fabric.address_of(host)))
    registry.taps.add(Tap("replay", 1))
    measuring = Measuring(1_000_000, False)
    measuring.update(received_table(workload, result))
    return Summary(measuring, registry, "entropy").flows()
