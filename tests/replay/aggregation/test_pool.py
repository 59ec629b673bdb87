"""SwitchML's workers: slots with clocks and timers of their own."""

from __future__ import annotations

import numpy as np
from aggregating import packets_seen, small_jobs

from rocescope.replay.aggregation.driver import run_jobs, start
from rocescope.replay.aggregation.run import Conditions, new_run, simulate
from rocescope.replay.aggregation.schemes.switchml import switchml


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
