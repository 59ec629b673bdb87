"""Hosts that do not listen: one EV per flow, or a random one per packet (OPS, RPS)."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, subkernel
from ..model.labels import (
    EVS,
    OWN,
    PORTS,
    EvState,
    HostFunctions,
    host_functions,
    mix,
    new_state,
    random_ev,
)


@subkernel
def select_random(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """A new random EV for every packet."""
    return random_ev(state, flow, free_ports)


@subkernel
def select_fixed(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The flow's own EV, the same for every packet."""
    ev = state.rows[flow, OWN]
    return ev if free_ports >> (ev % state.params[PORTS]) & 1 else np.int64(-1)


def spray(flows: int, seed: int, ports: int, evs: int) -> tuple[EvState, HostFunctions]:
    """Every packet goes its own way."""
    return new_state(flows, 1, seed, ports, evs), host_functions(select_random)


def fixed(flows: int, seed: int, ports: int, evs: int) -> tuple[EvState, HostFunctions]:
    """Every flow keeps the way that its random EV gives (ECMP)."""
    state = new_state(flows, 1, seed, ports, evs)
    for flow in range(flows):
        number = mix(np.uint64((seed << 32) ^ flow) * np.uint64(0x9E3779B97F4A7C15))
        state.rows[flow, OWN] = int(number) % int(state.params[EVS])
    return state, host_functions(select_fixed)
