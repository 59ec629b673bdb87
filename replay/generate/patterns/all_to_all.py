"""All-to-all: every host sends to every other host at the same time."""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from .demands import Demands, Settings, demands, need_hosts

MAX_HOSTS = 4096


def all_to_all(settings: Settings, rng: np.random.Generator) -> Demands:
    """Pairs in the order of the shift between source and destination."""
    need_hosts(settings, "all-to-all")
    if settings.hosts > MAX_HOSTS:
        raise UsageError(
            f"all-to-all of {settings.hosts:,} hosts has {settings.hosts**2:,} pairs; "
            f"use at most {MAX_HOSTS:,} hosts"
        )
    shift = np.repeat(np.arange(1, settings.hosts), settings.hosts)
    src = np.tile(np.arange(settings.hosts), settings.hosts - 1)
    return demands(settings, src, (src + shift) % settings.hosts)
