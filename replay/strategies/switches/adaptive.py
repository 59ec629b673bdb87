"""Adaptive routing per packet: a random link among those whose queues are in the lowest of 4 bands.

Source: "Switch Pkt AR" of "Load Balancing for AI Training Workloads" (arXiv 2507.21372), a model of
Spectrum-X: boundaries at 5, 10 and 20 percent of the buffer, levels refreshed at most every
0.1 us per queue, random among the best; packets under 100 B (ACKs) take a random port, as in
uet-htsim. The grading in the ASIC is not public.
"""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_size
from ....kernels.kernel import Int, Ints, inlined
from ...fabrics.fabric import Fabric
from ...packets.model.draws import SWITCH_PORT, drawn
from ...packets.model.model import ACK, Model, Workload, queued_bytes
from ...packets.model.rules import Choice, Rules, Strategy, chooser, no_label, nth_link
from ..base import Configured
from ..packet_state import WITHOUT_FLAGS, state_of
from .least import NONE, random_least, scratch_levels

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
        return Rules(_choose(), no_label(), state, reads_queues=True, parameters=parameters)


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
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    if at.packet & np.int64(ACK):
        what = at.packet & np.int64(WITHOUT_FLAGS)
        return drawn(state[0], SWITCH_PORT, what, at.switch, at.size)
    return least_band(state, links, at)
