"""Hosts give every packet a random entropy value, which switches hash (oblivious spraying).

Source: "Host Pkt" of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), OPS of REPS
(arXiv 2407.21625), the oblivious policy of Ultra Ethernet. The number of values matters: the hash
of a value never changes, so two values of a flow with the same path always share it.

"Random" has two readings: every packet draws from all values, or every value is used once per turn,
in a new random order in each turn, which spreads more evenly.
"""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Ints
from ..fabrics.fabric import Fabric
from ..packets.model.draws import HOST_LABEL, SWITCH_PORT, drawn, permuted
from ..packets.model.model import ACK, Workload, message_of, number_of
from ..packets.model.rules import Choice, Rules, Strategy, chooser, emitter
from .base import WITHOUT_FLAGS, Configured, state_of

ENTROPY_VALUES = 1 << 16
"""Of a UDP source port."""


class HostSpray(Configured, Strategy):
    """Options: `evs`, entropy values (65,536); `order`, `random` (each packet draws from all) or
    `turns` (each value once per turn of a flow)."""

    name = "host-spray"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("evs", "order")
        evs = self.whole("evs", ENTROPY_VALUES, 1, 1 << 31)
        order = self.word("order", "random", "turns")
        begin = workload.packet_start[workload.flow_start[workload.flow]]
        number = workload.packet_start[:-1] - begin
        parameters = {"evs": str(evs)}
        if order == "turns":
            parameters["order"] = order
        return Rules(
            hash_label(),
            _emit() if order == "random" else _emit_in_turns(),
            state_of([seed, evs], workload.flow, number),
            any_port=True,
            parameters=parameters,
        )


def on_all_ports(name: str, evs: int, fabric: Fabric) -> int:
    """evs rounded down to a multiple of the ports of a host: value modulo ports is the port."""
    if evs < fabric.ports:
        raise UsageError(f"{name}: evs={evs} are fewer than the {fabric.ports} ports of a host")
    return evs // fabric.ports * fabric.ports


@emitter
def _emit(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    return drawn(state[0], HOST_LABEL, packet & np.int64(WITHOUT_FLAGS), 0, state[1])


@emitter
def _emit_in_turns(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    """State: [seed, evs, positions of the tables of each message's flow and first number in it]."""
    message = message_of(packet)
    flow = state[state[2] + message]
    if packet & np.int64(ACK):
        flow |= np.int64(1 << 30)
    number = state[state[3] + message] + number_of(packet)
    turn, place = number // state[1], number % state[1]
    what = (flow << np.int64(32)) | turn
    return permuted(state[0], HOST_LABEL, what, place, state[1])


@chooser
def hash_label(state: Ints, links: Ints, at: Choice) -> Int:
    """An ideal hash of flow, direction and label, independent in every switch.

    State: [seed, any value, position of the table of each message's flow, ...].
    """
    flow = state[state[2] + message_of(at.packet)]
    if at.packet & np.int64(ACK):
        flow |= np.int64(1 << 30)
    return drawn(state[0], SWITCH_PORT, (flow << np.int64(32)) | at.label, at.switch, at.size)
