"""Flowlets: after a gap in a flow a switch draws a new random link, without congestion state.

Source: LetFlow (Vanini et al., NSDI 2017); the gap of 1 us is from the reference table in
docs/reproductions.md. Entries are selected by a hash as in hardware, so flows may share an entry.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Array, Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, below, draw, mixed
from ...packets.model.model import ACK, Workload, message_of
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of

GAP = "1us"
TABLE = 4096
"""Entries per switch (Broadcom: 256 to 32,768 per group; FBOSS: 2,048)."""


class Flowlet(Configured, Strategy):
    """Options: `gap` (1us); `table`, entries per switch (4096)."""

    name = "flowlet"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("gap", "table")
        gap, table, parameters = flowlet_options(self, GAP)
        state = state_of([seed, gap, table], workload.flow, *flowlet_tables(fabric, table))
        return Rules(_choose(), no_label(), state, parameters=parameters)


def flowlet_options(strategy: Configured, gap: str) -> tuple[int, int, dict[str, str]]:
    """(gap in ps, entries per switch, parameters); gap: the default."""
    gap_ps, gap = strategy.duration_ps("gap", gap)
    table = strategy.whole("table", TABLE, 1, 1 << 20)
    return gap_ps, table, {"gap": gap, "table": str(table)}


def flowlet_tables(fabric: Fabric, table: int) -> tuple[Array, Array]:
    """Time of the last packet (-1: none) and position in use, per switch and entry."""
    return np.full((fabric.switches, table), -1, np.int64), np.zeros((fabric.switches, table))


@inlined
def flowlet_entry(packet: Int, flow: Int, switch: Int, table: Int) -> Int:
    """The entry of a switch for a flow and direction."""
    direction = np.int64(1) if packet & np.int64(ACK) else np.int64(0)
    return switch * table + below(mixed(2 * flow + direction), table)


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    """State: seed, gap, entries; flow of every message, times, positions."""
    entry = flowlet_entry(at.packet, state[state[3] + message_of(at.packet)], at.switch, state[2])
    last, position = state[4] + entry, state[5] + entry
    if state[last] < 0 or at.time - state[last] > state[1] or state[position] >= at.size:
        random = draw(state[0], SWITCH_PORT, at.packet & np.int64(WITHOUT_FLAGS), at.switch)
        state[position] = below(random, at.size)
    state[last] = at.time
    return state[position]
