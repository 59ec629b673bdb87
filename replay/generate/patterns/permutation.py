"""Permutation: every host sends to one other host and receives from one."""

from __future__ import annotations

import numpy as np

from .demands import Demands, Settings, demands, need_hosts


def permutation(settings: Settings, rng: np.random.Generator) -> Demands:
    """A random permutation in which no host sends to itself."""
    need_hosts(settings, "permutation")
    hosts = np.arange(settings.hosts)
    order = rng.permutation(settings.hosts)
    fixed = np.flatnonzero(order == hosts)
    if len(fixed) == 1:  # swap with any other host: then neither sends to itself
        other = (fixed[0] + 1) % settings.hosts
        order[fixed[0]], order[other] = order[other], order[fixed[0]]
    else:  # rotate
        order[fixed] = order[np.roll(fixed, 1)]
    return demands(settings, hosts, order)
