"""Ring all-reduce: a reduce-scatter and an all-gather around one ring of all hosts.

Each of n hosts sends 2(n-1) chunks of 1/n of the data to its successor, one after the other.
"""

from __future__ import annotations

import numpy as np

from .demands import Demands, Settings, demands, need_hosts


def ring_allreduce(settings: Settings, rng: np.random.Generator) -> Demands:
    """The ring in port order; `messages` repeats it, `message_bytes` is the data of a host."""
    need_hosts(settings, "ring-allreduce")
    chunk = -(-settings.message_bytes // settings.hosts)
    steps = 2 * (settings.hosts - 1) * settings.messages
    src = np.arange(settings.hosts)
    return demands(
        settings._replace(message_bytes=chunk, messages=steps),
        src,
        (src + 1) % settings.hosts,
        in_turn=True,
    )
