"""The bitmap balancer of the Ultra Ethernet reference simulator: a penalty per entropy value (EV).

EVs are used in turn, in an order that changes at every wrap (XOR with a random number). EVs with
a penalty are skipped; the first skipped EV of each packet has its penalty lowered by 1.
Penalties: ECN mark 1, trimmed 4, timeout 15, at most 15 (ultraethernet/uet-htsim).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.labels import EvState, HostFunctions, draw, host_functions, new_state
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from .base import Configured
from .host_spray import HostSpray

MARK_PENALTY, TRIM_PENALTY, TIMEOUT_PENALTY, MOST_PENALTY = 1, 4, 15, 15
POSITION, PERMUTATION = labels.OWN, labels.OWN + 1
ENTROPY_VALUES = 256


class Bitmap(Configured, Strategy):
    """Option: `evs`, entropy values, a power of two (256)."""

    name = "bitmap"
    reacts: ClassVar[bool] = True
    learns_from_marks: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        return rules_of(self, bitmap, workload, fabric, seed)


def rules_of(
    strategy: Configured,
    hosts_of: Callable[[int, int, int, int], tuple[EvState, HostFunctions]],
    workload: Workload,
    fabric: Fabric,
    seed: int,
) -> Rules:
    """Rules of a strategy whose only option is `evs`; hosts_of: its state and functions for flows,
    seed, ports and entropy values."""
    strategy.known("evs")
    evs = power_of_two(strategy, fabric)
    base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
    hosts = hosts_of(len(workload.src), seed, fabric.ports, evs)
    return replace(base, hosts=hosts, parameters={"evs": str(evs)})


def power_of_two(strategy: Configured, fabric: Fabric) -> int:
    """The option `evs`."""
    evs = strategy.whole("evs", ENTROPY_VALUES, 2, 1 << 16)
    if evs & (evs - 1) or evs < fabric.ports:
        raise UsageError(f"{strategy.name}: evs={evs}: use a power of two from {fabric.ports} on")
    return evs


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The next EV without a penalty that uses a free port; -1 if no EV uses a free port."""
    rows, table = state.rows, state.table
    evs, ports = state.params[labels.EVS], state.params[labels.PORTS]
    lowered = False
    fallback = np.int64(-1)
    for _ in range(evs):
        position = rows[flow, POSITION]
        if position == 0:
            rows[flow, PERMUTATION] = draw(state, flow, evs)
        rows[flow, POSITION] = (position + 1) & (evs - 1)
        ev = position ^ rows[flow, PERMUTATION]
        free = free_ports >> (ev % ports) & 1
        if table[flow, ev] > 0:
            if not lowered:
                table[flow, ev] -= 1
                lowered = True
            if free and fallback < 0:
                fallback = ev
        elif free:
            return ev
    return fallback


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Add the penalty of an event."""
    penalty = np.int64(0)
    if what == labels.MARKED:
        penalty = np.int64(MARK_PENALTY)
    elif what == labels.TRIMMED:
        penalty = np.int64(TRIM_PENALTY)
    elif what == labels.LOST or what == labels.TIMEOUT:
        penalty = np.int64(TIMEOUT_PENALTY)
    if penalty:
        state.table[flow, ev] = min(
            np.int64(MOST_PENALTY), np.int64(state.table[flow, ev]) + penalty
        )
    return np.int64(0)


def bitmap(flows: int, seed: int, ports: int, evs: int) -> tuple[EvState, HostFunctions]:
    """State and functions; evs: a power of two."""
    return new_state(flows, evs, seed, ports, evs), host_functions(select, feedback)
