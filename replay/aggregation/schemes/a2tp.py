"""A2TP: ATP, and workers that send past the switch memory what exceeds a second window.

Rules: the released code of "A2TP: Aggregator-aware In-network Aggregation for Multi-tenant
Learning" (EuroSys 2023), which is built on that of ATP. A slot that another fragment wanted says so
with its sum, and the workers of that sum shrink their window of aggregators (`two_windows.py`). A
gradient beyond it has the bit of a retransmission: it takes the sum of its slot to the PS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ....kernels.kernel import Int, subkernel
from ...packets.model.records import Records
from ..columns import COLLIDED, CONTENDED, RESENT
from ..memory import fragment_of, is_resent
from ..state import TWO_WINDOWS, Memory
from .atp import TIMERS
from .atp import at_switch as of_atp
from .base import Scheme
from .options import Options

DEFAULTS: Final[Mapping[str, str]] = {
    **TIMERS,
    "rehash": "yes",
    "slot-timeout": "50ms",
    "base-rtt": "20us",
    "contention": "10",
    "aggregators": "0",
}
"""Base round-trip time and the tolerated percentage of contended results are those of the code, and
so is the window of aggregators at the start: 0, all packets in flight. The code's timers differ
from ATP's: rto=50ms,trigger=1."""


@subkernel
def at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, whole: Int, now_ps: Int
) -> Int:
    """That of ATP, which marks the sum whose slot another fragment wants."""
    cell = first + extra[slot].index
    owner = memory.cells[cell].owner
    if owner != 0 and owner != fragment_of(extra, slot) and not is_resent(extra, slot):
        memory.cells[cell].marked |= np.int64(CONTENDED)
    return of_atp(memory, extra, slot, first, whole, now_ps)


def a2tp(given: Mapping[str, str]) -> Scheme:
    """A2TP with its options."""
    options = Options("a2tp", given, DEFAULTS)
    return options.built(
        at_switch,
        rehash=(COLLIDED | RESENT) * options.on("rehash"),
        slot_timeout_ps=options.ps("slot-timeout"),
        congestion=TWO_WINDOWS,
        base_rtt_ps=options.ps("base-rtt"),
        aggregators=options.number("aggregators", 0, 1 << 13),
        contention_percent=options.number("contention", 0, 100),
    )
