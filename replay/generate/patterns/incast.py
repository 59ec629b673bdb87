"""Incast: many hosts send to one."""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from .demands import Demands, Settings, demands, need_hosts


def incast(settings: Settings, rng: np.random.Generator) -> Demands:
    """`fan_in` hosts, chosen at random (all others if None), send to host 0."""
    need_hosts(settings, "incast")
    others = settings.hosts - 1
    senders = others if settings.fan_in is None else settings.fan_in
    if not 1 <= senders <= others:
        raise UsageError(f"incast: --fan-in must be 1 to {others} for {settings.hosts} hosts")
    src = 1 + np.sort(rng.choice(others, senders, replace=False))
    return demands(settings, src, np.zeros(senders, np.int64))
