"""ATP: slots shared by all jobs, first come first served, found by a hash of the end hosts.

Rules: "ATP: In-network Aggregation for Multi-tenant Learning" (NSDI 2021) and its released code.
A slot that another fragment holds is a collision: the gradient goes to the PS without aggregation,
and the PS gives this window position another slot. A slot is released when the result passes, or
when a retransmission takes its partial sum to the PS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ....kernels.kernel import Int, subkernel
from ...packets.model.records import Records
from ..columns import COLLIDED
from ..memory import FORWARD, add, collide, flush, fragment_of, is_resent
from ..state import FIXED_WINDOW, ONE_WINDOW, Memory
from .base import Scheme
from .options import Options

TIMERS: Final[Mapping[str, str]] = {"rto": "200us", "first-rto": "50ms", "trigger": "3"}
"""The code's timers; three later results ask for a missing one, as in the paper (the code: one)."""
DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "cc": "no",
    "rehash": "yes",
    "reminder": "off",
    "slot-timeout": "50ms",
}


@subkernel
def at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, whole: Int, now_ps: Int
) -> Int:
    """See `memory.AtSwitch`."""
    cell = first + extra[slot].index
    owner = memory.cells[cell].owner
    same = owner == fragment_of(extra, slot)
    if is_resent(extra, slot):
        if same:
            flush(memory, extra, slot, cell, now_ps)
        return np.int64(FORWARD)
    if same or owner == 0:
        return add(memory, extra, slot, cell, whole, now_ps)
    collide(memory, extra, slot)
    return np.int64(FORWARD)


def atp(given: Mapping[str, str]) -> Scheme:
    """ATP with its options."""
    options = Options("atp", given, DEFAULTS)
    return options.built(
        at_switch,
        rehash=COLLIDED * options.on("rehash"),
        remind_ps=options.ps("reminder"),
        congestion=ONE_WINDOW if options.on("cc") else FIXED_WINDOW,
        slot_timeout_ps=options.ps("slot-timeout"),
    )
