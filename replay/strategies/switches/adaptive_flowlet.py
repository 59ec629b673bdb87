"""Adaptive routing per flowlet (DLB, ARS): after a gap a flow moves to a port of the best quality.

Quality is what SAI's adaptive routing and switching (mode flowlet-quality) makes of a port: moving
averages of the bytes it sent per sample and of the bytes queued, each in 8 bands and weighted.
Defaults of SAI: a sample every 16 us, weights 16 and 16, exponent 2 (a quarter of the difference
per sample); gap 16 us as FBOSS configures it. Assumed, as ASICs keep it to themselves: the highest
band begins at 7/8 of the line's rate and of a fifth of the buffer, ports are sampled when a
flowlet begins, random among the best. With `load=0` the port's load does not count and quality is
the queue's band as in `adaptive`: the flowlets of docs/reproductions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_duration
from ....kernels.kernel import Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.model import PS, Workload, message_of, queued_bytes
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from ..base import known_options, whole_number
from ..packet_state import WITHOUT_FLAGS, state_of
from .adaptive import band_state, least_band
from .flowlet import flowlet_entry, flowlet_options, flowlet_tables
from .least import NONE, random_least, room_for_levels

GAP = "16us"
SAMPLE = "16us"
WEIGHT = 16
EXPONENT = 2
_BANDS = 8
_SAMPLES = 64
"""After so many samples without a flowlet an average has forgotten what was before."""


@dataclass(frozen=True)
class AdaptiveFlowlet(Strategy):
    """Options: `gap` (16us), `table` (4096), `buffer` (800kB); `load` and `queue`, weights (16),
    `exponent` (2), `sample` (16us); with `load=0` those of adaptive in place of them."""

    options: Mapping[str, str]
    name: str = "adaptive-flowlet"

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        load = whole_number(self.name, self.options, "load", WEIGHT, 0, 1000)
        own = ("queue", "exponent", "sample") if load else ("bands", "refresh")
        known_options(self.name, self.options, ("gap", "table", "buffer", "load", *own))
        gap, table, parameters = flowlet_options(self.name, {"gap": GAP, **self.options})
        head, bands = band_state(self.name, self.options, seed)
        queue = whole_number(self.name, self.options, "queue", WEIGHT, 0, 1000)
        exponent = whole_number(self.name, self.options, "exponent", EXPONENT, 0, 16)
        sample = self.options.get("sample", SAMPLE)
        sample_ps = parse_duration(sample, f"{self.name}: sample") * PS
        if load:
            bands = {
                "buffer": bands["buffer"],
                "load": str(load),
                "queue": str(queue),
                "exponent": str(exponent),
                "sample": sample,
            }
        full = fabric.links.rate_bits_per_second.astype(np.float64) / 8e12 * sample_ps
        if load and sample_ps == 0:
            raise UsageError(f"{self.name}: sample=0: use a time such as {SAMPLE}")
        per_link = np.zeros(len(fabric.links.source), np.int64)
        # least_band finds the begins of its tables at 5 to 7; ours follow.
        state = state_of(
            head,
            per_link - 1,
            per_link,
            room_for_levels(fabric),
            np.array([gap, table, load, queue, exponent, max(1, sample_ps)], np.int64),
            workload.flow,
            *flowlet_tables(fabric, table),
            np.maximum(1, full),
            np.zeros((len(per_link), 4), np.int64),
        )
        return Rules(
            _choose(), no_label(), state, reads_queues=True, parameters={**parameters, **bands}
        )


@inlined
def quality(state: Ints, links: Ints, link: Int, time: Int) -> Int:
    """Band of a port, 0 the best to 7.

    State: numbers from 8 on, of links bytes per sample at their rate from 12 on, and from 13 on
    (averages of bytes sent and of bytes queued, bytes sent in all, sample) as of the last look.
    """
    numbers, at = state[8], state[13] + 4 * link
    now = time // state[numbers + 5]
    passed = now - state[at + 3]
    if passed > 0:
        queued = queued_bytes(links, link, time)
        sent = (links[link, 5] - state[at + 2]) // passed
        for _ in range(min(passed, np.int64(_SAMPLES))):
            state[at] += (sent - state[at]) >> state[numbers + 4]
            state[at + 1] += (queued - state[at + 1]) >> state[numbers + 4]
        state[at + 2], state[at + 3] = links[link, 5], now
    load = min(np.int64(_BANDS - 1), state[at] * _BANDS // state[state[12] + link])
    queue = min(np.int64(_BANDS - 1), state[at + 1] * _BANDS // max(np.int64(1), state[4]))
    weights = state[numbers + 2] + state[numbers + 3]
    return (state[numbers + 2] * load + state[numbers + 3] * queue) // weights


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    gap, table, load = state[state[8]], state[state[8] + 1], state[state[8] + 2]
    entry = flowlet_entry(at.packet, state[state[9] + message_of(at.packet)], at.switch, table)
    last, position = state[10] + entry, state[11] + entry
    if state[last] < 0 or at.time - state[last] > gap or state[position] >= at.size:
        what = at.packet & np.int64(WITHOUT_FLAGS)
        if load:
            for i in range(at.size):
                link = nth_link(at, i)
                state[state[7] + i] = quality(state, links, link, at.time)
            state[position] = random_least(
                state, state[7], at.size, state[0], what, at.switch, np.int64(NONE)
            )
        else:
            state[position] = least_band(state, links, at)
    state[last] = at.time
    return state[position]
