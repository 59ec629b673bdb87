"""Hosts give every packet a random entropy value, and switches hash it (oblivious spraying).

Source: "Host Pkt" of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), OPS of REPS
(arXiv 2407.21625), the oblivious policy of Ultra Ethernet. How many values there are matters: they
are hashed once, so two values of a flow on one path stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Int, Ints
from ...fabrics.fabric import Fabric
from ...packets.model.draws import HOST_LABEL, SWITCH_PORT, drawn
from ...packets.model.model import ACK, Workload, message_of
from ...packets.model.rules import Choice, Rules, Strategy, chooser, emitter
from ..base import known_options, whole_number
from ..packet_state import WITHOUT_FLAGS, state_of

ENTROPY_VALUES = 1 << 16
"""A UDP source port."""


@dataclass(frozen=True)
class HostSpray(Strategy):
    """Option: `evs`, entropy values to draw from (65,536)."""

    options: Mapping[str, str]
    name: str = "host-spray"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("evs",))
        evs = whole_number(self.name, self.options, "evs", ENTROPY_VALUES, 1, 1 << 31)
        return Rules(
            hash_label(),
            _emit(),
            state_of([seed, evs], workload.flow),
            any_port=True,
            parameters={"evs": str(evs)},
        )


def on_all_ports(name: str, evs: int, fabric: Fabric) -> int:
    """The values cut to a multiple of the ports of a host: value modulo ports is the port."""
    if evs < fabric.ports:
        raise UsageError(f"{name}: evs={evs} are fewer than the {fabric.ports} ports of a host")
    return evs // fabric.ports * fabric.ports


@emitter
def _emit(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    return drawn(state[0], HOST_LABEL, packet & np.int64(WITHOUT_FLAGS), 0, state[1])


@chooser
def hash_label(state: Ints, links: Ints, at: Choice) -> Int:
    """An ideal hash of flow, direction and label, another one in every switch.

    State: [seed, any, begin of the table of the flow of every message, ...].
    """
    flow = state[state[2] + message_of(at.packet)]
    if at.packet & np.int64(ACK):
        flow |= np.int64(1 << 30)
    return drawn(state[0], SWITCH_PORT, (flow << np.int64(32)) | at.label, at.switch, at.size)
