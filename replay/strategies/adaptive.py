"""Switches that move packets or flowlets away from loaded links.

Source: "Switch Pkt AR" of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), a model of
Spectrum-X: boundaries at 5, 10 and 20 percent of the buffer, levels refreshed at most every
0.1 us per queue, random among the best; packets under 100 B (ACKs) take a random port, as in
uet-htsim. The grading in the ASIC is not public.
"""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import parse_size
from ...kernels.kernel import Array, Int, Ints, inlined
from ..fabrics.fabric import Fabric
from ..packets.model.draws import SWITCH_PORT, below, draw, drawn, mixed
from ..packets.model.model import ACK, Model, Workload, message_of, queued_bytes
from ..packets.model.records import Records
from ..packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from .base import WITHOUT_FLAGS, Configured, state_of
from .shortest_queue import NONE, random_least, scratch_levels

# Flowlets: after a gap in a flow a switch draws a new random link, without congestion state.
#
# Source: LetFlow (Vanini et al., NSDI 2017); the gap of 1 us is from the reference table in
# docs/reproductions.md. Entries are selected by a hash as in hardware, so flows may share an entry.

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


BUFFER_BYTES = 800_000
BANDS_PERCENT = (5, 10, 20)
REFRESH = "100ns"


class Adaptive(Configured, Strategy):
    """Options: `bands`, percent of the buffer (5+10+20); `buffer` (that of the model, 800kB if it
    is unlimited); `refresh` (100ns)."""

    name = "adaptive"

    def under(self, model: Model) -> Adaptive:
        if model.buffer_bytes is None:
            return self
        return self.with_default("buffer", str(model.buffer_bytes))

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        self.known("bands", "buffer", "refresh")
        head, parameters = band_state(self, seed)
        per_link = np.zeros(len(fabric.links.source), np.int64)
        state = state_of(head, per_link - 1, per_link, scratch_levels(fabric))
        return Rules(
            _choose_adaptive(), no_label(), state, reads_queues=True, parameters=parameters
        )


def band_state(strategy: Configured, seed: int) -> tuple[list[int], dict[str, str]]:
    """([seed, refresh in ps, three band limits in bytes], parameters) from the options."""
    name, options = strategy.name, strategy.options
    text = options.get("bands", "+".join(map(str, BANDS_PERCENT)))
    parts = text.split("+")
    if len(parts) != 3 or not all(p.isascii() and p.isdecimal() for p in parts):
        raise UsageError(f"{name}: bands={text}: use three rising percentages such as 5+10+20")
    bands = [int(p) for p in parts]
    if sorted(bands) != bands or not 0 < bands[0] <= bands[-1] <= 100:
        raise UsageError(f"{name}: bands={text}: use three rising percentages such as 5+10+20")
    buffer = BUFFER_BYTES
    if "buffer" in options:
        buffer = parse_size(options["buffer"], f"{name}: buffer")
    refresh_ps, refresh = 0, "0"
    if options.get("refresh") != "0":
        refresh_ps, refresh = strategy.duration_ps("refresh", REFRESH)
    limits = [buffer * band // 100 for band in bands]
    parameters = {"bands": text, "buffer": str(buffer), "refresh": refresh}
    return [seed, refresh_ps, *limits], parameters


@inlined
def least_band(state: Ints, links: Ints, at: Choice) -> Int:
    """A random position among those of the lowest band; levels are up to `refresh` old.

    State: seed, refresh, three limits; where the refresh times and the levels of the links begin,
    and the scratch space for the levels of a group.
    """
    for i in range(at.size):
        link = nth_link(at, i)
        known, level_at = state[5] + link, state[6] + link
        if state[known] < 0 or at.time - state[known] >= state[1]:
            queued = queued_bytes(links, link, at.time)
            level = np.int64(0)
            for band in range(3):
                if queued >= state[2 + band]:
                    level = np.int64(band + 1)
            state[known], state[level_at] = at.time, level
        state[state[7] + i] = state[level_at]
    what = at.packet & np.int64(WITHOUT_FLAGS)
    return random_least(state, state[7], at.size, state[0], what, at.switch, np.int64(NONE))


@chooser
def _choose_adaptive(state: Ints, links: Ints, at: Choice) -> Int:
    if at.packet & np.int64(ACK):
        what = at.packet & np.int64(WITHOUT_FLAGS)
        return drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    return least_band(state, links, at)


# Adaptive routing per flowlet (DLB, ARS): after a gap a flow moves to a port of the best quality.
#
# The quality of a port as in SAI's adaptive routing and switching (mode flowlet-quality): moving
# averages of the bytes sent per sample and of the bytes queued, each in 8 bands and weighted.
# Defaults of SAI: a sample every 16 us, weights 16 and 16, exponent 2 (a quarter of the difference
# per sample); gap 16 us as in FBOSS. Assumed, because not public: the highest band begins at 7/8 of
# the line rate and of a fifth of the buffer, ports are sampled at the start of a flowlet, ties are
# broken at random. With `load=0` the load of the port does not count and quality is the band of the
# queue as in `adaptive`: the flowlets of docs/reproductions.md.

ADAPTIVE_FLOWLET_GAP = "16us"
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
        names = ("queue", "exponent", "sample") if load else ("bands", "refresh")
        self.known("gap", "table", "buffer", "load", *names)
        gap, table, parameters = flowlet_options(self, ADAPTIVE_FLOWLET_GAP)
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
            _choose_adaptive_flowlet(),
            no_label(),
            state,
            reads_queues=True,
            parameters={**parameters, **bands},
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
def _choose_adaptive_flowlet(state: Ints, links: Ints, at: Choice) -> Int:
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
