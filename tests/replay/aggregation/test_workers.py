"""Workers: windows, timers, lost results, congestion control."""

from __future__ import annotations

from aggregating import small_jobs

from rocescope.replay.aggregation.columns import ty
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes.atp import Atp
from rocescope.replay.aggregation.schemes.none import NoAggregation


def test_an_iteration_takes_its_computing_and_its_fragments():
    jobs, fabric = small_jobs("workers=2,fragments=1000,iterations=1,window=400")
    found = simulate(Atp({}), jobs, fabric, Conditions(slots=4096, jitter=0.0))
    way = 3 * 24_480 + 4 * 500_000  # to the PS and back, beside the worker's own link
    assert found.finished_ps.max() == jobs[0].steps[0].computed_ps[-1] + 1000 * 24_480 + way


def test_a_small_window_waits_for_results():
    jobs, fabric = small_jobs("workers=2,fragments=100,iterations=1,window=1")
    found = simulate(Atp({}), jobs, fabric, Conditions(slots=64, jitter=0.0))
    hops = 4 * (500_000 + 24_480)  # worker, switch, PS, switch, worker
    assert found.finished_ps.max() - jobs[0].steps[0].computed_ps[-1] == 100 * hops


def test_lost_packets_are_asked_for_by_later_results_or_by_the_timer():
    jobs, fabric = small_jobs("workers=3,fragments=300,iterations=1,window=32")
    lossy = Conditions(slots=64, loss=0.01, jitter=0.0)
    found = simulate(Atp({"rto": "1ms", "first-rto": "1ms"}), jobs, fabric, lossy)
    assert (found.finished_ps >= 0).all() and found.tally[0, ty.RESENT] > 0
    timers = simulate(Atp({"rto": "1ms", "first-rto": "1ms", "trigger": "0"}), jobs, fabric, lossy)
    assert timers.tally[0, ty.TIMEOUTS] > found.tally[0, ty.TIMEOUTS]


def test_congestion_control_avoids_losses_in_a_small_buffer():
    jobs, fabric = small_jobs("workers=8,fragments=2000,iterations=1,window=256")
    small = Conditions(slots=4096, buffer_bytes=1 << 16, ecn_bytes=1 << 14, jitter=0.0)
    options = {"rto": "1ms", "first-rto": "1ms"}
    blind = simulate(NoAggregation(options), jobs, fabric, small)
    assert blind.link_drops.sum() > 0 and (blind.finished_ps >= 0).all()
    slots = small._replace(slots=256)
    fixed = simulate(Atp({**options, "cc": "yes"}), jobs, fabric, slots)
    assert (fixed.finished_ps >= 0).all()


def test_the_long_timer_ends_with_the_first_result_that_arrives():
    jobs, fabric = small_jobs("workers=4,fragments=20,iterations=1,window=20")
    short = simulate(Atp({}), jobs, fabric, Conditions(slots=512, loss=0.1, seed=3))
    assert (short.finished_ps >= 0).all() and short.tally[0, ty.TIMEOUTS] > 0
    assert short.finished_ps.max() < 50 * 10**9


def test_stragglers_compute_longer_and_all_workers_wait_for_them():
    even, fabric = small_jobs("workers=3,fragments=100,iterations=2")
    late, _ = small_jobs("workers=3,fragments=100,iterations=2,stragglers=1,slowdown=3")
    still = Conditions(slots=4096, jitter=0.0)
    one, other = (simulate(Atp({}), jobs, fabric, still) for jobs in (even, late))
    computing = even[0].steps[0].computed_ps[-1]
    more = int(other.finished_ps.max() - one.finished_ps.max())
    # Twice the computing more; in turn the others' results no longer queue at its link.
    assert 4 * computing - 2 * 24_480 <= more <= 4 * computing
