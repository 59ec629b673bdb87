"""REPS: recycled entropy values (Bonato et al., EuroSys 2026, arXiv 2407.21625).

An EV whose packet was acknowledged without an ECN mark goes into a ring of 8 and is used once
more, the oldest first; with none left, or in the first bandwidth-delay product of a flow, the EV
is random. A timeout freezes the ring: then its EVs are used in turn, used up or not.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, subkernel
from ...packets.model.labels import (
    ACKED,
    OWN,
    OWN_PARAMETERS,
    PORTS,
    TIMEOUT,
    EvState,
    HostFunctions,
    host_functions,
    new_state,
    random_ev,
)

RING: Final = 8
"""Entries (paper)."""
FREEZE_PS: Final = 10_000_000_000
"""10 ms of freezing (the authors' simulator; the paper leaves the time open)."""
EXPLORE_AFTER: Final = 16
"""Random EVs after freezing (the authors' simulator)."""

HEAD, FROZEN, UNFREEZE, EXPLORE, WRITTEN = OWN, OWN + 1, OWN + 2, OWN + 3, OWN + 4
"""Where the next entry goes; frozen or not; when that ends; random EVs to send; entries ever
written, at most RING."""
_FREEZE, _EXPLORE_AFTER = OWN_PARAMETERS, OWN_PARAMETERS + 1


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The oldest valid EV; frozen, the next of the ring; else a random one."""
    rows, table = state.rows, state.table
    if rows[flow, EXPLORE] > 0 or rows[flow, WRITTEN] == 0:
        ev = random_ev(state, flow, free_ports)
        if ev >= 0 and rows[flow, EXPLORE] > 0:
            rows[flow, EXPLORE] -= 1
        return ev
    ports = state.params[PORTS]
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
    """Recycle what came through unmarked; freeze when packets vanish."""
    rows, table = state.rows, state.table
    if what == ACKED:
        head = rows[flow, HEAD]
        table[flow, head] = ev
        table[flow, RING + head] = 1
        rows[flow, HEAD] = (head + 1) % RING
        rows[flow, WRITTEN] = min(np.int64(RING), rows[flow, WRITTEN] + 1)
        if rows[flow, FROZEN] != 0 and now_ps > rows[flow, UNFREEZE]:
            rows[flow, FROZEN] = 0
            rows[flow, EXPLORE] = state.params[_EXPLORE_AFTER]
    elif what == TIMEOUT and rows[flow, FROZEN] == 0 and rows[flow, EXPLORE] == 0:
        rows[flow, FROZEN] = 1
        rows[flow, UNFREEZE] = now_ps + state.params[_FREEZE]
    return np.int64(0)


def reps(
    flows: int, seed: int, ports: int, evs: int, first: int, freeze_ps: int = FREEZE_PS
) -> tuple[EvState, HostFunctions]:
    """first: random EVs at the start of a flow, its bandwidth-delay product in packets."""
    state = new_state(flows, 2 * RING, seed, ports, evs, (freeze_ps, EXPLORE_AFTER))
    state.rows[:, EXPLORE] = first
    return state, host_functions(select, feedback)
