"""Unlimited memory: ATP's rules, and a slot for every fragment, so that no two ever collide."""

from __future__ import annotations

from collections.abc import Mapping

from ....kernels.kernel import pointer_to
from ..memory import at_switch_signature
from .atp import TIMERS, at_switch
from .base import Conduct, Scheme
from .options import Options


def ideal(given: Mapping[str, str]) -> Scheme:
    """ATP without limits of memory."""
    options = Options("ideal", given, TIMERS)
    conduct = Conduct(
        pointer_to(at_switch, at_switch_signature),
        private_slots=True,
        rto_ps=options.ps("rto"),
        first_rto_ps=options.ps("first-rto"),
        trigger=options.number("trigger", 0, 1000),
    )
    return Scheme(options.name, options.values, conduct)
