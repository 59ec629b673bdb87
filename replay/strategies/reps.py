"""REPS: hosts reuse the entropy values (EVs) of packets that arrived unmarked.

The EV of a packet that was acknowledged without an ECN mark is stored in a ring of 8 and used once
more, the oldest first; when no EV is left, and in the first bandwidth-delay product of a flow, the
EV is random. A timeout freezes the ring: its EVs are then used in turn, any number of times.
Source: Bonato et al., EuroSys 2026 (arXiv 2407.21625).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from ...kernels.kernel import Int, Ints, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.arrays import bdp_packets, fabric_arrays, round_trips
from ..packets.model.labels import EvState, HostFunctions, host_functions, new_state, random_ev
from ..packets.model.model import PS, Workload
from ..packets.model.rules import Rules, Strategy
from .base import Configured
from .host_spray import HostSpray, on_all_ports

RING: Final = 8
"""Entries (paper)."""
FREEZE_PS: Final = 10_000_000_000
"""10 ms of freezing (the authors' simulator; the paper does not give the time)."""
EXPLORE_AFTER: Final = 16
"""Random EVs after freezing (the authors' simulator)."""

HEAD, FROZEN, UNFREEZE, EXPLORE, WRITTEN = range(labels.OWN, labels.OWN + 5)
"""Position of the next entry; frozen or not; end of freezing; random EVs to send; entries written
so far, at most RING."""
_FREEZE, _EXPLORE_AFTER = labels.OWN_PARAMETERS, labels.OWN_PARAMETERS + 1
ENTROPY_VALUES = 1 << 16


class Reps(Configured, Strategy):
    """Options: `evs`, entropy values (65,536); `freeze`, how long the ring stays frozen (10ms)."""

    name = "reps"
    reacts: ClassVar[bool] = True
    learns_from_marks: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("evs", "freeze")
        evs = self.whole("evs", ENTROPY_VALUES, 2, 1 << 30)
        evs = on_all_ports(self.name, evs, fabric)
        freeze, _ = self.duration_ps("freeze", "10ms")
        packet = int(workload.packet_bytes.max(initial=64))
        trips = round_trips(workload.src, workload.dst, fabric_arrays(fabric), packet)
        first = bdp_packets(trips, packet)
        hosts = reps(len(workload.src), seed, fabric.ports, evs, first, freeze)
        parameters = {
            "evs": str(evs),
            "freeze": f"{freeze // PS}ns",
            "first": str(first.max(initial=1)),
        }
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        return replace(base, hosts=hosts, parameters=parameters)


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The oldest valid EV, while frozen the next EV of the ring, else a random EV."""
    rows, table = state.rows, state.table
    if rows[flow, EXPLORE] > 0 or rows[flow, WRITTEN] == 0:
        ev = random_ev(state, flow, free_ports)
        if ev >= 0 and rows[flow, EXPLORE] > 0:
            rows[flow, EXPLORE] -= 1
        return ev
    ports = state.params[labels.PORTS]
    frozen = rows[flow, FROZEN] != 0
    for any_entry in range(2 if frozen else 1):
        for i in range(RING):  # from the oldest entry on
            at = (rows[flow, HEAD] + i) % RING
            if any_entry and at >= rows[flow, WRITTEN]:
                continue
            if not any_entry and table[flow, RING + at] == 0:
                continue
            ev = np.int64(table[flow, at])
            if free_ports >> (ev % ports) & 1:
                table[flow, RING + at] = 0
                if any_entry:
                    rows[flow, HEAD] = (at + 1) % RING
                return ev
    return np.int64(-1) if frozen else random_ev(state, flow, free_ports)


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Store EVs of unmarked packets; freeze after a timeout."""
    rows, table = state.rows, state.table
    if what == labels.ACKED:
        head = rows[flow, HEAD]
        table[flow, head] = ev
        table[flow, RING + head] = 1
        rows[flow, HEAD] = (head + 1) % RING
        rows[flow, WRITTEN] = min(np.int64(RING), rows[flow, WRITTEN] + 1)
        if rows[flow, FROZEN] != 0 and now_ps > rows[flow, UNFREEZE]:
            rows[flow, FROZEN] = 0
            rows[flow, EXPLORE] = state.params[_EXPLORE_AFTER]
    elif what == labels.TIMEOUT and rows[flow, FROZEN] == 0 and rows[flow, EXPLORE] == 0:
        rows[flow, FROZEN] = 1
        rows[flow, UNFREEZE] = now_ps + state.params[_FREEZE]
    return np.int64(0)


def reps(
    flows: int, seed: int, ports: int, evs: int, first: int | Ints, freeze_ps: int = FREEZE_PS
) -> tuple[EvState, HostFunctions]:
    """State and functions; first: random EVs at the start of a flow, its bandwidth-delay product in
    packets."""
    state = new_state(flows, 2 * RING, seed, ports, evs, (freeze_ps, EXPLORE_AFTER))
    state.rows[:, EXPLORE] = first
    return state, host_functions(select, feedback)
