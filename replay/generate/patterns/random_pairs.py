"""Random: flows between random pairs of different hosts, all at the same time."""

from __future__ import annotations

import numpy as np

from .demands import Demands, Settings, demands, need_hosts


def random_pairs(settings: Settings, rng: np.random.Generator) -> Demands:
    """`flows` pairs; a pair may be drawn more than once."""
    need_hosts(settings, "random")
    src = rng.integers(0, settings.hosts, settings.flows)
    dst = (src + rng.integers(1, settings.hosts, settings.flows)) % settings.hosts
    return demands(settings, src, dst)
