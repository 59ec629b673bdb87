"""DRILL(d, m): the shortest of d random queues and of the queue that was shortest before.

Source: Ghorbani et al., "DRILL: Micro Load Balancing for Low-latency Data Center Networks",
SIGCOMM 2017: d = 2 and m = 1. Assumed: a switch is one forwarding engine, draws may hit the same
port twice, and of equal queues the first drawn port wins.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, drawn, purpose
from ...packets.model.model import Workload, queued_bytes
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of

_MORE = purpose("drill: the ports after the first one")


class Drill(Configured, Strategy):
    """Options: `samples`, random ports per packet (2); `memory`, remembered ports, 0 or 1 (1)."""

    name = "drill"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("samples", "memory")
        samples, memory = self.whole("samples", 2, 1, 64), self.whole("memory", 1, 0, 1)
        remembered = np.full(max(1, len(fabric.forwarding.group_links)), -1, np.int64)
        state = state_of([seed, samples, memory], remembered)
        parameters = {"samples": str(samples), "memory": str(memory)}
        return Rules(_choose(), no_label(), state, reads_queues=True, parameters=parameters)


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    """State: seed, samples, memory; position that was best last, by group."""
    what = at.packet & np.int64(WITHOUT_FLAGS)
    chosen = drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    shortest = queued_bytes(links, nth_link(at, chosen), at.time)
    for i in range(1, state[1]):
        where = (at.switch << np.int64(8)) | i
        other = drawn(state[0], _MORE, what, where, at.size)
        queued = queued_bytes(links, nth_link(at, other), at.time)
        if queued < shortest:
            chosen, shortest = other, queued
    kept = state[3] + at.first % (len(state) - state[3])
    if state[2] and 0 <= state[kept] < at.size:
        if queued_bytes(links, nth_link(at, state[kept]), at.time) < shortest:
            chosen = state[kept]
    state[kept] = chosen
    return chosen
