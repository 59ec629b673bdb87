"""The packets of a replay as a table and as flows of the analyzer, the twin of `reordering`."""

from __future__ import annotations

import numpy as np

from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.wire.bth import ROCE_UDP_PORT
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.generate.queue_pairs import START_NS
from rocescope.replay.packets.model.model import MARKED, PS, EngineResult, Workload
from rocescope.replay.packets.received import received_order

_FIRST, _MIDDLE, _LAST, _ONLY = 0x00, 0x01, 0x02, 0x04
"""Opcodes of SEND on a reliable connection."""
_ECT0, _CE = 2, 3
_FIRST_QP = 0x100
_HEADERS = 14 + 20 + 8 + 12 + 4


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


def received_flows(workload: Workload, result: EngineResult, fabric: Fabric) -> list[Flow]:
    """The flows of the received packets, as the analyzer measures them."""
    registry = Registry()
    for host in range(fabric.hosts):
        registry.endpoints.add(str(fabric.address_of(host)))
    registry.taps.add(Tap("replay", 1))
    measuring = Measuring(1_000_000, False)
    measuring.update(received_table(workload, result))
    return Summary(measuring, registry, "entropy").flows()
