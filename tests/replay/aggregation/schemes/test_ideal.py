"""Unlimited memory: no fragment collides, however many jobs there are."""

from __future__ import annotations

from aggregating import small_jobs

from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes.atp import atp
from rocescope.replay.aggregation.schemes.ideal import ideal


def test_no_gradient_collides_and_every_sum_is_complete_in_the_switch():
    jobs, fabric = small_jobs("count=3,workers=3,fragments=40,window=8,iterations=2")
    found = simulate(ideal({}), jobs, fabric, Conditions(slots=1))
    assert not found.tally["collisions"].any()
    assert (found.tally["whole"] == 80).all()


def test_losses_cost_no_more_time_than_with_limited_memory():
    jobs, fabric = small_jobs("count=3,workers=3,fragments=400,window=32,iterations=2")
    lossy = Conditions(slots=96, loss=0.01)
    ends = [
        simulate(scheme, jobs, fabric, lossy).finished_ps.max() for scheme in (ideal({}), atp({}))
    ]
    assert 0 < ends[0] <= ends[1]
