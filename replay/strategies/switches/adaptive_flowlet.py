"""Adaptive routing per flowlet (DLB, ARS): after a gap a flow moves to a port of the best quality.

The quality of a port as in SAI's adaptive routing and switching (mode flowlet-quality): moving
averages of the bytes sent per sample and of the bytes queued, each in 8 bands and weighted.
Defaults of SAI: a sample every 16 us, weights 16 and 16, exponent 2 (a quarter of the difference
per sample); gap 16 us as in FBOSS. Assumed, because not public: the highest band begins at 7/8 of
the line rate and of a fifth of the buffer, ports are sampled at the start of a flowlet, ties are
broken at random. With `load=0` the load of the port does not count and quality is the band of the
queue as in `adaptive`: the flowlets of docs/reproductions.md.
"""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.model import Model, Workload, message_of, queued_bytes
from ...packets.model.records import Records
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of
from .adaptive import band_state, least_band
from .flowlet import flowlet_entry, flowlet_options, flowlet_tables
from .least import NONE, random_least, scratch_levels

GAP = "16us"
SAMPLE = "16us"
WEIGHT = 16
EXPONENT = 2
_BANDS = 8
_SAMPLES = 64
"""After this many samples without a flowlet an average no longer depends on earlier samples."""


class AdaptiveFlowlet(Configured, Strategy):
    """Options: `gap` (16us), `table` (4096), `buffer` (as in adaptive); `load` and `queue`, weights
    (16), `exponent` (2), `sample` (16us); with `load=0` those of adaptive in place of the last
    three."""

    name = "adaptive-flowlet"

    def under(self, model: Model) -> AdaptiveFlowlet:
        if model.buffer_bytes is None:
            return self
        return self.with_default("buffer", str(model.buffer_bytes))

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        load = self.whole("load", WEIGHT, 0, 1000)
        own = ("queue", "exponent", "sample") if load else ("bands", "refresh")
        self.known("gap", "table", "buffer", "load", *own)
        gap, table, parameters = flowlet_options(self, GAP)
        head, bands = band_state(self, seed)
        queue = self.whole("queue", WEIGHT, 0, 1000)
        exponent = self.whole("exponent", EXPONENT, 0, 16)
        sample_ps, sample = self.duration_ps("sample", SAMPLE)
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
        # Items 5 to 7 are the table positions of least_band; more follow.
        state = state_of(
            head,
            per_link - 1,
            per_link,
            scratch_levels(fabric),
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
def quality(state: Ints, links: Records, link: Int, time: Int) -> Int:
    """Band of a port, from 0 (best) to 7.

    State: position of the numbers at 8; of the bytes that each link sends per sample at its rate at
    12; at 13, of each link's (average of bytes sent and queued, total bytes sent, last sample).
    """
    numbers, at = state[8], state[13] + 4 * link
    now = time // state[numbers + 5]
    passed = now - state[at + 3]
    if passed > 0:
        queued = queued_bytes(links, link, time)
        sent = (links[link].carried - state[at + 2]) // passed
        for _ in range(min(passed, np.int64(_SAMPLES))):
            state[at] += (sent - state[at]) >> state[numbers + 4]
            state[at + 1] += (queued - state[at + 1]) >> state[numbers + 4]
        state[at + 2], state[at + 3] = links[link].carried, now
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
