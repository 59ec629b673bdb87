"""Who sends to whom."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns.demands import Settings
from rocescope.replay.generate.patterns.registry import PATTERNS, pattern

SETTINGS = Settings(
    hosts=16, message_bytes=1 << 20, messages=3, flows=1000, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip


def made(name, seed=1, **changes):
    return pattern(name)(SETTINGS._replace(**changes), np.random.default_rng(seed))


@pytest.mark.parametrize("name", PATTERNS)
def test_one_host_is_not_enough(name):
    with pytest.raises(UsageError, match="at least 2 hosts"):
        made(name, hosts=1)


def test_an_unknown_pattern_and_too_many_pairs():
    with pytest.raises(UsageError, match="no pattern 'star'; there are permutation"):
        pattern("star")
    with pytest.raises(UsageError, match="all-to-all of 5,000 hosts"):
        made("all-to-all", hosts=5000)
