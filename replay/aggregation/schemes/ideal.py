"""Unlimited memory: ATP's rules, and a slot for every fragment, so that no two ever collide."""

from __future__ import annotations

from collections.abc import Mapping

from .atp import TIMERS, at_switch
from .base import Scheme
from .options import Options


def ideal(given: Mapping[str, str]) -> Scheme:
    """ATP without limits of memory."""
    options = Options("ideal", given, TIMERS)
    return options.built(
        at_switch,
        private_slots=True,
    )
