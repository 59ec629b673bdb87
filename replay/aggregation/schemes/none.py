"""No aggregation: every gradient goes to the PS, which sends every worker its result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....kernels.kernel import Int, subkernel
from ...packets.model.records import Records
from ..memory import FORWARD
from ..state import Memory
from .atp import TIMERS
from .base import Scheme
from .options import Options


@subkernel
def at_switch(
    memory: Memory, extra: Records, slot: Int, first: Int, whole: Int, now_ps: Int
) -> Int:
    """See `memory.AtSwitch`."""
    return np.int64(FORWARD)


def no_aggregation(given: Mapping[str, str]) -> Scheme:
    """A PS alone."""
    options = Options("none", given, TIMERS)
    return options.built(
        at_switch,
        aggregates=False,
        multicast=False,
        overflows=False,
    )
