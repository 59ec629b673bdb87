"""Hopper: a flow whose round trips grow long probes two other labels and moves to a faster one.

Once per round trip the moving average of a flow's RTT is compared with its base RTT. Above 1.5
times of it the host probes two random labels (two choices); if the faster probe needs less than
80 percent of the average, the flow takes its label. No ECN and no switch takes part.
Source: Nosrati, Ghaderi, "Predictive Load Balancing for RDMA Traffic" (arXiv 2506.08132), by a
public summary of it. Assumed: the weight of the moving average (1/8), a new label after a timeout,
and that a flow moves at once; the paper delays the move by the difference of the RTTs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ...kernels.kernel import Int, Ints, subkernel
from ..fabrics.fabric import Fabric
from ..packets.model import labels
from ..packets.model.arrays import fabric_arrays, round_trips
from ..packets.model.labels import EvState, HostFunctions, host_functions, new_state, random_ev
from ..packets.model.model import Workload
from ..packets.model.rules import Rules, Strategy
from .base import Configured
from .host_spray import HostSpray, on_all_ports

CURRENT, AVERAGE_PS, BASE_PS, EPOCH_END, TO_PROBE, ASKED, BEST, BEST_PS, PROBED_UNTIL = range(
    labels.OWN, labels.OWN + 9
)
"""EV + 1 (0: none yet), moving average of the RTT (0: none yet), base RTT, when the average is
compared next, probes to send, answers to wait for, EV of the fastest answer and its RTT, when
answers are no longer waited for."""
_SLOW, _FASTER = labels.OWN_PARAMETERS, labels.OWN_PARAMETERS + 1
PROBES = 2
_SHIFT = 3  # weight of a new RTT: 1/8
LABELS = 1 << 16


class Hopper(Configured, Strategy):
    """Options: `slow`, percent of the base RTT from which a flow probes (150); `faster`, percent of
    its RTT that a probe must be below (80)."""

    name = "hopper"
    reacts: ClassVar[bool] = True

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("slow", "faster")
        slow, faster = self.whole("slow", 150, 100, 10_000), self.whole("faster", 80, 1, 100)
        evs = on_all_ports(self.name, LABELS, fabric)
        packet = int(workload.packet_bytes.max(initial=64))
        base_ps = round_trips(workload.src, workload.dst, fabric_arrays(fabric), packet).ps
        hosts = hopper(len(workload.src), seed, fabric.ports, evs, base_ps, slow, faster)
        base = HostSpray({"evs": str(evs)}).rules(workload, fabric, seed)
        return replace(base, hosts=hosts, parameters={"slow": f"{slow}%", "faster": f"{faster}%"})


@subkernel
def select(state: EvState, flow: Int, free_ports: Int, now_ps: Int) -> Int:
    """The current label."""
    rows = state.rows
    if rows[flow, CURRENT] == 0:
        rows[flow, CURRENT] = random_ev(state, flow, free_ports) + 1
    ev = rows[flow, CURRENT] - 1
    if ev >= 0 and free_ports >> (ev % state.params[labels.PORTS]) & 1:
        return ev
    return np.int64(-1)


@subkernel
def feedback(state: EvState, flow: Int, ev: Int, what: Int, now_ps: Int) -> Int:
    """Follow the RTT; ask for probes; compare their answers."""
    rows, params = state.rows, state.params
    rtt = rows[flow, labels.RTT]
    if what == labels.PROBE_CLEAN or what == labels.PROBE_MARKED:
        if rows[flow, ASKED] > 0:
            rows[flow, ASKED] -= 1
            if rtt < rows[flow, BEST_PS]:
                rows[flow, BEST], rows[flow, BEST_PS] = ev, rtt
            faster = 100 * rows[flow, BEST_PS] < params[_FASTER] * rows[flow, AVERAGE_PS]
            if rows[flow, ASKED] == 0 and faster:
                rows[flow, CURRENT] = rows[flow, BEST] + 1
                rows[flow, AVERAGE_PS] = rows[flow, BEST_PS]
    elif what == labels.TIMEOUT:
        rows[flow, CURRENT] = rows[flow, AVERAGE_PS] = 0
    elif (what == labels.ACKED or what == labels.MARKED) and ev == rows[flow, CURRENT] - 1:
        average = rows[flow, AVERAGE_PS]
        average = rtt if average == 0 else average + ((rtt - average) >> _SHIFT)
        rows[flow, AVERAGE_PS] = average
        if now_ps >= rows[flow, EPOCH_END]:
            rows[flow, EPOCH_END] = now_ps + average
            waits = rows[flow, ASKED] > 0 and now_ps < rows[flow, PROBED_UNTIL]
            if 100 * average > params[_SLOW] * rows[flow, BASE_PS] and not waits:
                rows[flow, TO_PROBE] = rows[flow, ASKED] = PROBES
                rows[flow, BEST_PS] = labels.NEVER
                rows[flow, PROBED_UNTIL] = now_ps + 2 * average
                rows[flow, labels.WAKE] = now_ps
    return np.int64(0)


@subkernel
def wake(state: EvState, flow: Int, now_ps: Int) -> Int:
    """A random label for the next probe."""
    rows = state.rows
    rows[flow, labels.WAKE] = labels.NEVER
    if rows[flow, TO_PROBE] == 0:
        return np.int64(-1)
    rows[flow, TO_PROBE] -= 1
    if rows[flow, TO_PROBE] > 0:
        rows[flow, labels.WAKE] = now_ps + 1
    return random_ev(state, flow, (np.int64(1) << state.params[labels.PORTS]) - 1)


def hopper(
    flows: int,
    seed: int,
    ports: int,
    evs: int,
    base_ps: int | Ints,
    slow: int = 150,
    faster: int = 80,
) -> tuple[EvState, HostFunctions]:
    """State and functions; base_ps: a round-trip time without queues."""
    state = new_state(flows, 1, seed, ports, evs, (slow, faster))
    state.rows[:, BASE_PS] = state.rows[:, EPOCH_END] = base_ps
    return state, host_functions(select, feedback, wake)
