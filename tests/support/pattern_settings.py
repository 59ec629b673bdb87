"""Settings of patterns of traffic, for their tests."""

from __future__ import annotations

import numpy as np

from rocescope.replay.generate.patterns import Demands, Pattern, Settings

SETTINGS = Settings(
    hosts=16, message_bytes=1 << 20, messages=3, flows=1000, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip


def made(pattern: Pattern, seed: int = 1, **changes: object) -> Demands:
    """What a pattern makes of the settings."""
    return pattern(SETTINGS._replace(**changes), np.random.default_rng(seed))
