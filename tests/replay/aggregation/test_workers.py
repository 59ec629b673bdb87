"""Workers: windows, timers, A2TP's two windows, pools of SwitchML.

Workers: windows, timers, lost results, congestion control.

A2TP's windows: packets in flight, and packets that may use switch memory.

SwitchML's workers: slots with clocks and timers of their own.
"""

from __future__ import annotations

import numpy as np
import pytest
from aggregating import Bench, packets_seen, small_jobs

from rocescope.replay.aggregation.run import Conditions, new_run, run_jobs, simulate, start
from rocescope.replay.aggregation.schemes import a2tp, atp, no_aggregation, switchml
from rocescope.replay.aggregation.state import CONTENDED, ECHO, ONE_PACKET
from rocescope.replay.aggregation.workers import note_result


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


WINDOW, BASE = 40, 20_000_000


def beginning(**options: str):
    """A run whose workers begin, with a window of 20 of at most 40 packets, 20 of aggregators."""
    jobs, fabric = small_jobs(f"workers=2,fragments=1000,window={WINDOW}")
    conduct = a2tp(options).conduct
    run = new_run("a2tp", conduct, jobs, fabric, Conditions(slots=64, jitter=0.0))
    run.world.workers["congestion"] = 20 * ONE_PACKET
    run.world.workers["aggregators"] = 20
    start(run, np.zeros(2, np.int64))
    return run


def period(run, kinds=(), took: int = 0) -> tuple[int, int]:
    """Results of a whole window for worker 0, the first ones of these kinds; the windows then."""
    row = run.world.workers[0]
    first, last = int(row["done"]), int(row["period_end"])
    at = int(row["period_at"])
    for number, seq in enumerate(range(first, last + 1)):
        kind = kinds[number] if number < len(kinds) else 0
        row["done"] = seq + 1
        note_result(run, 0, seq, kind, at + took)
    return int(row["congestion"]) // ONE_PACKET, int(row["aggregators"])


@pytest.mark.thorough
def test_a_period_without_feedback_adds_a_packet_to_both_windows():
    run = beginning()
    assert period(run) == (21, 21) and period(run) == (22, 22)
    for _ in range(30):
        period(run)
    assert period(run) == (WINDOW, WINDOW)


def test_contention_up_to_the_tolerance_cuts_nothing():
    run = beginning(contention="10")
    # 16 of 20, an eighth of which is the average: 0.1
    assert period(run, [CONTENDED] * 16) == (21, 21)
    again = beginning(contention="0")
    cut = (16 / 20 / 8) / 2  # all results are prompt: to the power of 1
    assert period(again, [CONTENDED] * 16) == (21, int(20 * (1 - cut)))


def test_a_job_with_fewer_prompt_results_gives_more_slots_up():
    found = []
    for prompt in (1.0, 0.5, 0.1):
        run = beginning(contention="0")
        run.world.degrees["prompt"][0] = run.world.degrees["prompt_now"][0] = prompt
        found.append(period(run, [CONTENDED] * 16)[1])
        cut = 0.1**prompt / 2
        assert found[-1] == int(20 * (1 - cut))
    assert found == sorted(found, reverse=True) and found[0] > found[-1]


def test_prompt_results_are_those_within_the_base_round_trip_time():
    run = beginning()
    row = run.world.workers[0]
    note_result(run, 0, 0, 0, 2 * BASE)
    assert run.world.degrees["prompt_now"][0] == 1  # not in the first period of an iteration
    period(run)
    begun = int(row["period_at"])
    row["done"] += 7
    note_result(run, 0, int(row["done"]) - 1, 0, begun + BASE)
    assert run.world.degrees["prompt_now"][0] == 1
    note_result(run, 0, int(row["done"]) - 1, 0, begun + BASE + 1)
    assert run.world.degrees["prompt_now"][0] == pytest.approx(7 / 21)
    row["measured"] = 0
    run.world.degrees["prompt_now"][0] = 1
    note_result(run, 0, int(row["done"]) - 1, 0, begun + 5 * BASE)
    assert run.world.degrees["prompt_now"][0] == 1  # a pause, not a straggler


def test_marks_cut_the_packets_in_flight_and_the_aggregators_with_them():
    run = beginning()
    window, aggregators = period(run, [ECHO] * 20)
    assert window == int(20 * (1 - 1 / 8 / 2)) == aggregators


def test_a_later_result_ends_a_period_whose_last_result_came_before():
    run = beginning()
    row = run.world.workers[0]
    end = int(row["period_end"])
    note_result(run, 0, end + 3, 0, 1)
    assert row["period_end"] == end + 3 + 21


def test_what_exceeds_the_aggregators_goes_past_the_memory():
    jobs, fabric = small_jobs("count=3,workers=4,fragments=1000,window=64,iterations=2")
    options = {"first-rto": "200us", "contention": "0"}
    found = simulate(a2tp(options), jobs, fabric, Conditions(slots=80, jitter=0.5))
    assert (found.finished_ps >= 0).all() and (found.tally["bypassed"] > 0).all()
    assert (found.tally["sent"] == 4 * 2000).all()
    alone, fabric = small_jobs("workers=4,fragments=600,window=64,iterations=2")
    enough = simulate(a2tp(options), alone, fabric, Conditions(slots=80, jitter=0.5))
    assert not enough.tally["bypassed"].any()


def test_a_result_is_the_permission_to_send_the_next_chunk_of_its_slot():
    jobs, fabric = small_jobs("workers=2,fragments=100,iterations=1,window=400")
    still = Conditions(slots=2, jitter=0.0)  # one slot of two versions
    found = simulate(switchml({}), jobs, fabric, still)
    hops = 2 * (500_000 + 24_480)  # worker, switch, worker
    assert found.finished_ps.max() - jobs[0].steps[0].computed_ps[-1] == 100 * hops


def test_a_lost_packet_stops_its_slot_alone():
    jobs, fabric = small_jobs("workers=2,fragments=4000,iterations=1,window=8")
    conduct = switchml({}).conduct
    run = new_run("switchml", conduct, jobs, fabric, Conditions(slots=16, loss=0.001, jitter=0.0))
    start(run, np.zeros(2, np.int64))
    run_jobs(run, conduct.at_switch, 9 * 10**9, 1 << 40)  # before the first timer of 10 ms
    assert not run.memory.tally["timeouts"].any()
    for slots in run.world.pool:
        chunks = slots["seq"] // 8
        assert chunks.max() > chunks.min() + 1  # far apart: no slot waits for another


def test_a_timer_doubles_after_as_many_retransmissions_as_asked_for():
    jobs, fabric = small_jobs("workers=2,fragments=1,iterations=1,window=1")
    mute = Conditions(slots=16, loss=1.0, jitter=0.0, until_ps=40 * 10**9)
    counts = []
    for after in ("0", "1"):
        found = simulate(switchml({"rto": "1ms", "double-after": after}), jobs, fabric, mute)
        counts.append(int(found.tally["timeouts"][0]))
    # Per worker: 39 times 1 ms; or 1, then 2, 4, 8, 16 ms.
    assert counts == [2 * 39, 2 * 5]


def test_every_packet_in_flight_has_its_timer():
    jobs, fabric = small_jobs("workers=2,fragments=8,iterations=1,window=8")
    mute = Conditions(slots=16, loss=1.0, jitter=0.0, until_ps=40 * 10**9)
    found = simulate(switchml({"rto": "1ms", "double-after": "0"}), jobs, fabric, mute)
    assert found.tally["timeouts"][0] == found.tally["resent"][0] == 2 * 8 * 39


def test_a_packet_finds_its_slot_and_version_from_its_number_in_the_segment_of_its_job():
    jobs, fabric = small_jobs("count=2,workers=2,fragments=50,iterations=1,window=400")
    conduct = switchml({}).conduct
    run = new_run("switchml", conduct, jobs, fabric, Conditions(slots=26, jitter=0.0))
    packets = packets_seen(run, conduct.at_switch).tolist()
    assert len(packets) == 2 * 50
    seen: list[set[int]] = [set(), set()]
    half = 6  # 26 slots for 2 jobs: 13 each, of which two versions take 12
    for job, number, index in packets:
        i = number % (2 * half)
        version = i >= half
        assert index == 12 * job + version * half + i % half
        seen[job].add(index)
    assert seen == [set(range(12)), set(range(12, 24))]


def test_a_timer_is_10_ms():
    assert switchml({}).conduct.rto_ps == switchml({}).conduct.first_rto_ps == 10 * 10**9
