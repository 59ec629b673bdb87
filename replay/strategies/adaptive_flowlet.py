"""Adaptive routing per flowlet (DLB, ARS): after a gap a flow moves to a link of the lowest band.

Source: SAI's adaptive routing and switching (mode flowlet-quality), FBOSS' and Broadcom's DLB.
Bands and staleness are those of `adaptive`; ASICs also weigh the past load of the port, which
this model leaves out. Default gap 16 us as FBOSS configures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...analyzer.kernel import Int
from ..engine.model import Workload, message_of
from ..engine.rules import Rules, chooser, no_label
from ..fabric import Fabric
from .adaptive import band_state, least_band
from .base import known_options
from .flowlet import flowlet_entry, flowlet_options, flowlet_tables
from .packet_state import WITHOUT_FLAGS, state_of

GAP = "16us"


@dataclass(frozen=True)
class AdaptiveFlowlet:
    """Options: `gap` (16us), `table` (4096), and those of adaptive."""

    options: Mapping[str, str]
    name: str = "adaptive-flowlet"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        known = ("gap", "table", "bands", "buffer", "refresh")
        known_options(self.name, self.options, known)
        gap, table, parameters = flowlet_options(self.name, {"gap": GAP, **self.options})
        head, bands = band_state(self.name, self.options, seed)
        per_link = np.zeros(len(fabric.links.source), np.int64)
        tables = flowlet_tables(fabric, table)
        # least_band finds the begins of its tables at 5 and 6; the gap and table follow as tables.
        own = np.array([gap, table], np.int64)
        state = state_of(head, per_link - 1, per_link, own, workload.flow, *tables)
        return Rules(
            _choose(), no_label(), state, reads_queues=True, parameters={**parameters, **bands}
        )


@chooser
def _choose(
    state: Int,
    links: Int,
    members: Int,
    first: Int,
    size: Int,
    switch: Int,
    edge: Int,
    packet: Int,
    label: Int,
    time: Int,
) -> Int:
    gap, table = state[state[7]], state[state[7] + 1]
    entry = flowlet_entry(packet, state[state[8] + message_of(packet)], switch, table)
    last, position = state[9] + entry, state[10] + entry
    if state[last] < 0 or time - state[last] > gap or state[position] >= size:
        what = packet & np.int64(WITHOUT_FLAGS)
        state[position] = least_band(state, links, members, first, size, switch, what, time)
    state[last] = time
    return state[position]
