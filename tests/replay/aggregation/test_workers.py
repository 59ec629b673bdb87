"""Workers: windows, timers, lost results, congestion control."""

from __future__ import annotations

import numpy as np
from aggregating import Bench, packets_seen, small_jobs

from rocescope.replay.aggregation.columns import ECHO
from rocescope.replay.aggregation.driver import run_jobs, start
from rocescope.replay.aggregation.run import Conditions, new_run, simulate
from rocescope.replay.aggregation.schemes.atp import atp
from rocescope.replay.aggregation.schemes.none import no_aggregation
from rocescope.replay.aggregation.state import ONE_PACKET


def test_an_iteration_takes_its_computing_and_its_fragments():
    jobs, fabric = small_jobs("workers=2,fragments=1000,iterations=1,window=400")
    found = simulate(atp({}), jobs, fabric, Conditions(slots=4096, jitter=0.0))
    way = 3 * 24_480 + 4 * 500_000  # to the PS and back, beside the worker's own link
    assert found.finished_ps.max() == jobs[0].steps[0].computed_ps[-1] + 1000 * 24_480 + way


def test_a_small_window_waits_for_results():
    jobs, fabric = small_jobs("workers=2,fragments=100,iterations=1,window=1")
    found = simulate(atp({}), jobs, fabric, Conditions(slots=64, jitter=0.0))
    hops = 4 * (500_000 + 24_480)  # worker, switch, PS, switch, worker
    assert found.finished_ps.max() - jobs[0].steps[0].computed_ps[-1] == 100 * hops


def test_lost_packets_are_asked_for_by_later_results_or_by_the_timer():
    jobs, fabric = small_jobs("workers=3,fragments=300,iterations=1,window=32")
    lossy = Conditions(slots=64, loss=0.01, jitter=0.0)
    found = simulate(atp({"rto": "1ms", "first-rto": "1ms"}), jobs, fabric, lossy)
    assert (found.finished_ps >= 0).all() and found.tally["resent"][0] > 0
    timers = simulate(atp({"rto": "1ms", "first-rto": "1ms", "trigger": "0"}), jobs, fabric, lossy)
    assert timers.tally["timeouts"][0] > found.tally["timeouts"][0]


def test_congestion_control_avoids_losses_in_a_small_buffer():
    jobs, fabric = small_jobs("workers=8,fragments=2000,iterations=1,window=256")
    small = Conditions(slots=4096, buffer_bytes=1 << 16, ecn_bytes=1 << 14, jitter=0.0)
    options = {"rto": "1ms", "first-rto": "1ms"}
    blind = simulate(no_aggregation(options), jobs, fabric, small)
    assert blind.link_drops.sum() > 0 and (blind.finished_ps >= 0).all()
    slots = small._replace(slots=256)
    fixed = simulate(atp({**options, "cc": "yes"}), jobs, fabric, slots)
    assert (fixed.finished_ps >= 0).all()


def test_the_long_timer_ends_with_the_first_result_that_arrives():
    jobs, fabric = small_jobs("workers=4,fragments=20,iterations=1,window=20")
    short = simulate(atp({}), jobs, fabric, Conditions(slots=512, loss=0.1, seed=3))
    assert (short.finished_ps >= 0).all() and short.tally["timeouts"][0] > 0
    assert short.finished_ps.max() < 50 * 10**9


def test_stragglers_compute_longer_and_all_workers_wait_for_them():
    even, fabric = small_jobs("workers=3,fragments=100,iterations=2")
    late, _ = small_jobs("workers=3,fragments=100,iterations=2,stragglers=1,slowdown=3")
    still = Conditions(slots=4096, jitter=0.0)
    one, other = (simulate(atp({}), jobs, fabric, still) for jobs in (even, late))
    computing = even[0].steps[0].computed_ps[-1]
    more = int(other.finished_ps.max() - one.finished_ps.max())
    # Twice the computing more; in turn the others' results no longer queue at its link.
    assert 4 * computing - 2 * 24_480 <= more <= 4 * computing


def bench(until: float, *results: int | tuple[int, int], **options: str) -> Bench:
    """20 gradients of one worker, all sent before results of these sequence numbers (and flags)
    arrive, 5 us apart from 100 us on."""
    found = Bench(atp(options), "workers=2,fragments=20,iterations=1,window=400", slots=1024)
    for number, result in enumerate(results):
        seq, flags = result if isinstance(result, tuple) else (result, 0)
        found.result(100 + 5 * number, seq, flags)
    found.until(until)
    assert found.tally["sent"] == 20 == found.tally["absorbed"]
    return found


def test_the_third_later_result_asks_for_the_missing_one_once():
    later = (1, 2, 3, 4, 5, 6)
    asked = [bench(150, *later[:count]).tally["resent"] for count in range(7)]
    assert asked == [0, 0, 0, 1, 1, 1, 1]
    assert bench(150, 1, trigger="1").tally["resent"] == 1


def test_a_timer_is_50_ms_before_the_first_result_and_200_us_then():
    before = [bench(until).tally["timeouts"] for until in (50_000, 50_100)]
    then = [bench(until, 0).tally["timeouts"] for until in (299, 310)]
    assert before == then == [0, 1]


def test_a_timer_repeats_what_is_missing_below_the_first_result_or_one_gradient():
    assert bench(50_100).tally["resent"] == 1
    some = bench(320, 4, 6, trigger="0")
    assert some.tally["timeouts"] == 1 and some.tally["resent"] == 4  # 0 to 3, not 5


def test_the_window_grows_by_an_mtu_per_result_then_per_window_and_marks_halve_it():
    results = (0, 1, (2, ECHO), (3, ECHO), 4)
    found = [
        bench(150, *results[:count], cc="yes").worker["congestion"] / ONE_PACKET
        for count in range(6)
    ]
    # An MTU is five packets; the second mark is of a packet sent before the window was halved.
    assert found[:5] == [200, 205, 210, 105, 105]
    assert 105 + 4.9 / 105 < found[5] < 105 + 5.1 / 105


def test_three_later_results_halve_the_window():
    assert bench(150, 1, 2, 3, cc="yes").worker["congestion"] == 210 * ONE_PACKET // 2


def test_a_window_position_has_one_slot_which_comes_round():
    jobs, fabric = small_jobs("workers=2,fragments=50,iterations=1,window=8")
    conduct = atp({}).conduct
    run = new_run("atp", conduct, jobs, fabric, Conditions(slots=64, jitter=0.0))
    _, numbers, slots = packets_seen(run, conduct.at_switch).T
    assert numbers.tolist() == list(range(50))
    assert slots.tolist() == run.world.server_index[0, numbers % 8].tolist()
    assert len(set(slots.tolist())) == 8


def test_workers_follow_their_server_to_the_slots_after_collisions():
    jobs, fabric = small_jobs("count=2,workers=2,fragments=200,iterations=1,window=16")
    conduct = atp({}).conduct
    run = new_run("atp", conduct, jobs, fabric, Conditions(slots=40, jitter=0.0))
    before = run.world.server_index.copy()
    start(run, np.zeros(4, np.int64))
    run_jobs(run, conduct.at_switch, 10**12, 1 << 40)
    assert (run.world.server_index != before).any()
    for worker, row in enumerate(run.world.worker_index):
        assert row.tolist() == run.world.server_index[worker // 2].tolist()
    assert all(len(set(own)) == 16 for own in run.world.server_index.tolist())
