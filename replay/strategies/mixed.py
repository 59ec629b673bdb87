"""Mixed: hosts reuse the entropy values (EVs) of unmarked packets, and else take those of `bitmap`.

Every EV whose packet was acknowledged without an ECN mark is used again, the oldest first; when
none is left the next EV is that of `bitmap`, with its penalties. The default balancer of the Ultra
Ethernet reference simulator (ultraethernet/uet-htsim, "mixed").
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...kernels.kernel import Int, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.labels import EvState, HostFunctions, host_functions, new_state
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from . import bitmap
from .base import Configured
from .bitmap import rules_of

FIRST, STORED = bitmap.PERMUTATION + 1, bitmap.PERMUTATION + 2
"""Position of the oldest EV in the ring, and number of EVs in it. The ring follows the penalties in
`table` and has room for every EV once; the oldest is overwritten."""


class Mixed(Configured, Strategy):
    """Option: `evs`, entropy values, a power of two (256)."""

    name = "mixed"
    reacts: ClassVar[bool] = True
    learns_from_marks: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        return rules_of(self, mixed, workload, fabric, seed)


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The oldest stored EV if its port is free, else that of `bitmap`."""
    rows, table, evs = state.rows, state.table, state.params[labels.EVS]
    if rows[flow, STORED] > 0:
        ev = np.int64(table[flow, evs + rows[flow, FIRST]])
        if free_ports >> (ev % state.params[labels.PORTS]) & 1:
            rows[flow, FIRST] = (rows[flow, FIRST] + 1) % evs
            rows[flow, STORED] -= 1
            return ev
    return bitmap.select(state, flow, free_ports, now_ps)


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Store the EV of an unmarked packet, else add its penalty."""
    rows, table, evs = state.rows, state.table, state.params[labels.EVS]
    if what != labels.ACKED:
        return bitmap.feedback(state, flow, ev, what, now_ps)
    table[flow, evs + (rows[flow, FIRST] + rows[flow, STORED]) % evs] = ev
    if rows[flow, STORED] < evs:
        rows[flow, STORED] += 1
    else:
        rows[flow, FIRST] = (rows[flow, FIRST] + 1) % evs
    return np.int64(0)


def mixed(flows: int, seed: int, ports: int, evs: int) -> tuple[EvState, HostFunctions]:
    """State and functions; evs: a power of two."""
    return new_state(flows, 2 * evs, seed, ports, evs), host_functions(select, feedback)
