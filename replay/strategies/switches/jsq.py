"""Every switch sends every packet to the shortest of its equal-cost queues.

Source: JSQ of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), theory part:
exact queue lengths. With the lowest port on ties it is "Adaptive RoCE" of REPS' baselines.
By default ACKs use a random port: Ultra Ethernet's simulator (uet-htsim) hashes all packets under
100 B, and only then the queues equal those of the reference tables (docs/reproductions.md).
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, TIE, drawn
from ...packets.model.model import ACK, Workload, queued_bytes
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of


class ShortestQueue(Configured, Strategy):
    """Options: `ties`, `random` or `first` port (random); `acks`, `random` port or `shortest`
    queue (random)."""

    name = "jsq"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("ties", "acks")
        ties = self.word("ties", "random", "first")
        acks = self.word("acks", "random", "shortest")
        state = state_of([seed, int(ties == "random"), int(acks == "random")])
        parameters = {"ties": ties, "acks": acks}
        return Rules(_choose(), no_label(), state, reads_queues=True, parameters=parameters)


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    what = at.packet & np.int64(WITHOUT_FLAGS)
    if state[2] and at.packet & np.int64(ACK):
        return drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    best: Int = np.int64(1 << 62)
    equal: Int = np.int64(0)
    chosen: Int = np.int64(0)
    for i in range(at.size):
        queued = queued_bytes(links, nth_link(at, i), at.time)
        if queued < best:
            best, equal, chosen = queued, np.int64(1), np.int64(i)
        elif queued == best:
            equal += 1
    if state[1] and equal > 1:
        skip = drawn(state[0], TIE, what, at.switch, equal)
        for i in range(at.size):
            if queued_bytes(links, nth_link(at, i), at.time) == best:
                if skip == 0:
                    return np.int64(i)
                skip -= 1
    return chosen
