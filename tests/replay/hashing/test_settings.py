"""Settings of a hash."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.settings import HashSettings, equal_cost


def test_how_a_seed_became_known_changes_no_hash():
    assert HashSettings(seed=7, seed_recovered=True) == HashSettings(seed=7)
    assert HashSettings(seed=7) != HashSettings(seed=8)
    assert HashSettings(extra={"policy": 1}) != HashSettings()


def test_plain_groups():
    assert equal_cost(3).weights.tolist() == [1, 1, 1] and equal_cost(1).buckets is None
    with pytest.raises(UsageError, match="at least one next hop"):
        equal_cost(0)
