"""Flowlets: after a gap in a flow a switch draws a new random link for it, without any congestion
state.

Source: LetFlow (Vanini et al., NSDI 2017); the gap of 1 us is that of the reference table in
docs/reproductions.md. The table is found by a hash as in hardware, so flows may share an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....analyzer.units import parse_duration
from ....kernels.kernel import Array, Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, below, draw, mixed
from ...packets.model.model import ACK, PS, Workload, message_of
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label
from ..base import known_options, whole_number
from ..packet_state import WITHOUT_FLAGS, state_of

GAP = "1us"
TABLE = 4096
"""Entries per switch (Broadcom's are 256 to 32,768 per group, FBOSS configures 2,048)."""


@dataclass(frozen=True)
class Flowlet(Strategy):
    """Options: `gap` (1us); `table`, entries per switch (4096)."""

    options: Mapping[str, str]
    name: str = "flowlet"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known_options(self.name, self.options, ("gap", "table"))
        gap, table, parameters = flowlet_options(self.name, self.options)
        state = state_of([seed, gap, table], workload.flow, *flowlet_tables(fabric, table))
        return Rules(_choose(), no_label(), state, parameters=parameters)


def flowlet_options(name: str, options: Mapping[str, str]) -> tuple[int, int, dict[str, str]]:
    """(gap in ps, entries per switch, parameters)."""
    gap = options.get("gap", GAP)
    table = whole_number(name, options, "table", TABLE, 1, 1 << 20)
    parameters = {"gap": gap, "table": str(table)}
    return parse_duration(gap, f"{name}: gap") * PS, table, parameters


def flowlet_tables(fabric: Fabric, table: int) -> tuple[Array, Array]:
    """Time of the last packet (-1 none) and position taken, per switch and entry."""
    return np.full((fabric.switches, table), -1, np.int64), np.zeros((fabric.switches, table))


@inlined
def flowlet_entry(packet: Int, flow: Int, switch: Int, table: Int) -> Int:
    """Where a switch keeps what it knows of a flow and direction."""
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
