"""Trace-like: flows arrive one after the other and differ in size, as in a shared cluster.

Arrivals are a Poisson process, sizes log-normal: most flows are short, most bytes are in
a few long flows. A model for experiments, not fitted to a cluster.
"""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from .demands import Demands, Settings, need_hosts
from .random_pairs import random_pairs

SIGMA = 1.5
"""Standard deviation of the logarithm of sizes: the largest tenth carries over half the bytes."""

LARGEST = 64
"""Maximum size of a flow relative to `message_bytes`."""
SMALLEST = 64
"""Bytes of the smallest flow."""


def trace_like(settings: Settings, rng: np.random.Generator) -> Demands:
    """`flows` flows with `message_bytes` as the median size, with arrivals that give `load`."""
    need_hosts(settings, "trace-like")
    if not 0 < settings.load <= 1:
        raise UsageError(f"trace-like: --load must be above 0 and at most 1, not {settings.load:g}")
    pairs = random_pairs(settings, rng)
    factor = np.minimum(rng.lognormal(0, SIGMA, settings.flows), LARGEST)
    size = np.maximum(SMALLEST, np.rint(factor * settings.message_bytes)).astype(np.int64)
    total_bits = 8.0 * float(size.sum()) * settings.messages
    duration_s = total_bits / (settings.load * settings.rate_bits_per_second * settings.hosts)
    gaps = rng.exponential(duration_s / settings.flows, settings.flows)
    return pairs._replace(
        message_bytes=size,
        start_ns=np.rint(np.cumsum(gaps) * 1e9).astype(np.int64),
        sharing=np.ones(settings.flows, np.int64),
    )
