"""No aggregation: every gradient goes to the PS, which sends every worker its result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....kernels.kernel import Int, Ints, pointer_to, subkernel
from ..memory import FORWARD, at_switch_signature
from ..state import Memory
from .atp import TIMERS
from .base import Conduct, Scheme
from .options import Options


@subkernel
def at_switch(memory: Memory, extra: Ints, slot: Int, first: Int, whole: Int, now_ps: Int) -> Int:
    """See `memory.AtSwitch`."""
    return np.int64(FORWARD)


def no_aggregation(given: Mapping[str, str]) -> Scheme:
    """A PS alone."""
    options = Options("none", given, TIMERS)
    conduct = Conduct(
        pointer_to(at_switch, at_switch_signature),
        aggregates=False,
        multicast=False,
        overflows=False,
        rto_ps=options.ps("rto"),
        first_rto_ps=options.ps("first-rto"),
        trigger=options.number("trigger", 0, 1000),
    )
    return Scheme(options.name, options.values, conduct)
