"""Losses, copies and delays of the network: drawn, counted, and harmless to sums."""

from __future__ import annotations

import pytest
from aggregating import small_jobs

from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes.atp import atp
from rocescope.replay.aggregation.schemes.switchml import switchml


@pytest.mark.parametrize("scheme", [atp({}), switchml({"rto": "100us"})], ids=lambda s: s.name)
def test_faults_happen_as_often_as_asked_for_and_sums_stay_right(scheme):
    jobs, fabric = small_jobs("workers=4,fragments=500,iterations=1,window=64")
    quiet = simulate(scheme, jobs, fabric, Conditions(slots=256))
    assert not quiet.link_drops.any() and not quiet.tally["resent"][0]
    lost = simulate(scheme, jobs, fabric, Conditions(slots=256, loss=0.05))
    assert 0.03 < lost.link_drops.sum() / lost.hops < 0.07
    copied = simulate(scheme, jobs, fabric, Conditions(slots=256, copies=0.2, delays=0.1))
    assert copied.hops > 1.2 * quiet.hops
    assert (copied.finished_ps >= 0).all() and not copied.tally["wrong"][0]
