"""ESA: slots that a gradient of higher priority may take from another job.

"Efficient Data-Plane Memory Scheduling for In-Network Aggregation" (arXiv 2201.06398). Its abstract
names preemptive allocation and priority scheduling in the data plane; the rules here are assumed,
each an option: docs/aggregation.md says what each rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...kernels.kernel import Int, subkernel
from ..packets.model.records import Records
from .atp import TIMERS
from .scheme import Options, Scheme
from .state import COLLIDED, OWN, Memory
from .switches import FORWARD, add, collide, flush, fragment_of, is_resent, release, swap

_AGEING, _EARLY = OWN, OWN + 1
DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "reminder": "60us",
    "ageing": "yes",
    "release": "result",
    "rehash": "no",
}


@subkernel
def esa_at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, all_workers: Int, now_ps: Int
) -> Int:
    """See `switches.AtSwitch`."""
    cells, params = memory.cells, memory.params
    cell = first + extra[slot].index
    owner = cells[cell].owner
    same = owner == fragment_of(extra, slot)
    if is_resent(extra, slot):
        if same:
            flush(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    if not same and owner:
        collide(memory, extra, slot)
        if cells[cell].done or cells[cell].priority >= extra[slot].priority:
            if params[_AGEING]:
                cells[cell].priority >>= 1
            return np.int64(FORWARD)
        if extra[slot].bits != all_workers:
            swap(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    fate = add(memory, extra, slot, cell, all_workers, now_ps)
    if params[_EARLY] and cells[cell].done:
        release(memory, cell, now_ps)
    return fate


def esa(given: Mapping[str, str]) -> Scheme:
    """ESA with its assumptions as options."""
    options = Options("esa", given, DEFAULTS)
    return options.built(
        esa_at_switch,
        params=(
            int(options.on("ageing")),
            int(options.one_of("release", "result", "completion") == "completion"),
        ),
        rehash=COLLIDED * options.on("rehash"),
        remind_ps=options.ps("reminder"),
    )
