"""PLB: a flow changes its label when too many of its packets are marked.

Acknowledgements are counted in rounds of one round-trip time; a round is congested when the
marked share reaches the threshold; after enough congested rounds in a row the flow draws a new
label. Source: Linux, tcp_plb.c and ip-sysctl (50 %, 12 rounds, 3 when nothing is in flight,
a pause of 1 to 2 times 60 s after a timeout). "Load Balancing for AI Training Workloads"
(arXiv 2507.21372, there "Flowlet") has 40 % and does not give the rounds: 1 is assumed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from ...kernels.kernel import Int, Ints, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.arrays import fabric_arrays, round_trips
from ..packets.model.labels import (
    EvState,
    HostFunctions,
    draw,
    host_functions,
    new_state,
    random_ev,
)
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from .base import Configured
from .host_spray import HostSpray, on_all_ports

PAUSE_PS: Final = 60_000_000_000_000
"""60 s; the pause is one to two times this (Linux)."""
CURRENT, ROUND_END, SEEN, MARKS, CONGESTED, PAUSED_UNTIL, ROUND_PS = range(
    labels.OWN, labels.OWN + 7
)
"""EV + 1 (0: none yet), end of the round, packets and marks in it, congested rounds in a row, end
of the pause, length of a round."""
_PERCENT, _ROUNDS, _IDLE_ROUNDS, _PAUSE = (labels.OWN_PARAMETERS + i for i in range(4))
LABELS = 1 << 20
"""IPv6 flow labels."""


class Plb(Configured, Strategy):
    """Options: `percent` of marked packets in a congested round (40, the study; Linux: 50);
    `rounds` in a row before a new label (1, assumed; Linux: 12), `idle`, the same when nothing is
    in flight (1, assumed; Linux: 3)."""

    name = "plb"
    reacts: ClassVar[bool] = True
    learns_from_marks: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("percent", "rounds", "idle")
        percent = self.whole("percent", 40, 1, 100)
        rounds = self.whole("rounds", 1, 1, 1000)
        idle = self.whole("idle", min(rounds, 3), 1, 1000)
        evs = on_all_ports(self.name, LABELS, fabric)
        packet = int(workload.packet_bytes.max(initial=64))
        round_ps = round_trips(workload.src, workload.dst, fabric_arrays(fabric), packet).ps
        hosts = plb(len(workload.src), seed, fabric.ports, evs, round_ps, percent, rounds, idle)
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        parameters = {"percent": str(percent), "rounds": str(rounds), "idle": str(idle)}
        return replace(base, hosts=hosts, parameters=parameters)


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The current label; a new label after enough congested rounds."""
    rows, params = state.rows, state.params
    congested = rows[flow, CONGESTED]
    enough = congested >= params[_ROUNDS]
    if rows[flow, labels.OUTSTANDING] == 0 and congested >= params[_IDLE_ROUNDS]:
        enough = True
    if rows[flow, CURRENT] == 0 or (enough and now_ps >= rows[flow, PAUSED_UNTIL]):
        rows[flow, CURRENT] = random_ev(state, flow, free_ports) + 1
        rows[flow, CONGESTED] = 0
    ev = rows[flow, CURRENT] - 1
    if ev >= 0 and free_ports >> (ev % params[labels.PORTS]) & 1:
        return ev
    return np.int64(-1)


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Count marks per round; after a timeout a new label at once, then a pause."""
    rows, params = state.rows, state.params
    if what == labels.ACKED or what == labels.MARKED:
        rows[flow, SEEN] += 1
        if what == labels.MARKED:
            rows[flow, MARKS] += 1
        if now_ps >= rows[flow, ROUND_END]:
            marked = 100 * rows[flow, MARKS] >= params[_PERCENT] * rows[flow, SEEN]
            rows[flow, CONGESTED] = rows[flow, CONGESTED] + 1 if marked else 0
            rows[flow, SEEN] = 0
            rows[flow, MARKS] = 0
            rows[flow, ROUND_END] = now_ps + rows[flow, ROUND_PS]
    elif what == labels.TIMEOUT:
        rows[flow, CURRENT] = 0
        rows[flow, CONGESTED] = 0
        if params[_PAUSE] > 0:
            thousandths = 1000 + draw(state, flow, 1000)
            rows[flow, PAUSED_UNTIL] = now_ps + params[_PAUSE] // 1000 * thousandths
    return np.int64(0)


def plb(
    flows: int,
    seed: int,
    ports: int,
    evs: int,
    round_ps: int | Ints,
    percent: int = 40,
    rounds: int = 1,
    idle_rounds: int = 1,
    pause_ps: int = PAUSE_PS,
) -> tuple[EvState, HostFunctions]:
    """State and functions; round_ps: a round-trip time without queues."""
    parameters = (percent, rounds, idle_rounds, pause_ps)
    state = new_state(flows, 1, seed, ports, evs, parameters)
    state.rows[:, ROUND_END] = state.rows[:, ROUND_PS] = round_ps
    return state, host_functions(select, feedback)
