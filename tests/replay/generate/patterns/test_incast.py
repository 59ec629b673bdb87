"""Many hosts send to one."""

from __future__ import annotations

import pytest
from pattern_settings import made

from rocescope.analyzer.errors import UsageError
from rocescope.replay.generate.patterns.incast import incast


def test_incast_goes_to_host_0():
    assert made(incast).src.tolist() == list(range(1, 16))
    demand = made(incast, fan_in=5)
    assert len(set(demand.src.tolist()) - {0}) == 5 and set(demand.dst.tolist()) == {0}
    for fan_in in (0, 16):
        with pytest.raises(UsageError, match="--fan-in must be 1 to 15"):
            made(incast, fan_in=fan_in)
