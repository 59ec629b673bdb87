"""A2TP's windows: packets in flight, and packets that may use switch memory."""

from __future__ import annotations

import numpy as np
import pytest
from aggregating import small_jobs

from rocescope.replay.aggregation.columns import CONTENDED, ECHO, dg
from rocescope.replay.aggregation.driver import start
from rocescope.replay.aggregation.run import Conditions, new_run, simulate
from rocescope.replay.aggregation.schemes.a2tp import a2tp
from rocescope.replay.aggregation.state import ONE_PACKET
from rocescope.replay.aggregation.two_windows import note_result

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
        run.world.degrees[0, [dg.PROMPT, dg.PROMPT_NOW]] = prompt
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
