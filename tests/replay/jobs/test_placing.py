"""Hosts of jobs."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.placing import FreeHosts

FABRIC = parse_fabric("leaf-spine:leaves=3,spines=1,hosts=2,rate=100G")


def test_packed_spread_and_random_hosts() -> None:
    free = FreeHosts(FABRIC)
    assert free.take(2, "spread", "a", 1).tolist() == [0, 2]
    assert free.take(2, "packed", "b", 1).tolist() == [1, 3]
    assert sorted(free.take(2, "random", "c", 1).tolist()) == [4, 5]
    with pytest.raises(UsageError, match="d has 1 workers, but .* has 0 free hosts"):
        free.take(1, "packed", "d", 1)
    drawn = {tuple(FreeHosts(FABRIC).take(4, "random", "e", seed).tolist()) for seed in range(9)}
    assert len(drawn) > 1
