"""The PS's rules for whole, partial and repeated packets."""

from __future__ import annotations

import numpy as np
from aggregating import small_jobs

from rocescope.replay.aggregation.network import new_packet
from rocescope.replay.aggregation.run import Conditions, new_run, simulate
from rocescope.replay.aggregation.schemes import atp, no_aggregation
from rocescope.replay.aggregation.server import take_gradient
from rocescope.replay.aggregation.state import COLLIDED, FLOATS, RESENT


def test_partial_sums_are_added_once_and_overlapping_ones_are_ignored_whole():
    jobs, fabric = small_jobs("workers=3,fragments=4,window=4")
    run = new_run("atp", atp({}).conduct, jobs, fabric, Conditions(slots=8))

    def arrive(bits: int, value: int, flags: int = 0) -> None:
        slot = int(new_packet(run, flags, 0, 0, 0, jobs[0].server))
        run.world.extra["bits"][slot], run.world.extra["value"][slot] = bits, value
        take_gradient(run, slot, np.int64(1000))

    entry = run.world.sums[0]
    arrive(0b001, 5)
    arrive(0b011, 9)  # overlaps: its second value is lost here and will be retransmitted
    assert entry["bits"] == 0b001 and entry["value"] == 5
    arrive(0b110, 4)
    assert entry["bits"] == 0b111 and entry["value"] == 9 and entry["done"]
    arrive(0b100, 3, RESENT)  # its worker lost the result: it is retransmitted
    tally = run.memory.tally[0]
    assert tally["server"] == 4 and tally["ignored"] == 2
    link = int(fabric.attachments.access_link[jobs[0].server, 0])
    assert (
        run.net.stats["packets"][link] + run.net.links["waiting_packets"][link] == 2
    )  # results sent or waiting


def test_a_packet_with_all_values_replaces_a_partial_sum():
    jobs, fabric = small_jobs("workers=3,fragments=4,window=4")
    run = new_run("atp", atp({}).conduct, jobs, fabric, Conditions(slots=8))
    for bits, value in ((0b001, 5), (0b111, 20)):
        slot = int(new_packet(run, 0, 0, 0, 0, jobs[0].server))
        run.world.extra["bits"][slot], run.world.extra["value"][slot] = bits, value
        take_gradient(run, slot, np.int64(1000))
    entry = run.world.sums[0]
    assert entry["done"] and entry["value"] == 20 and not run.memory.tally["ignored"][0]


def test_after_a_collision_the_reply_names_the_next_slot_that_the_job_does_not_use():
    jobs, fabric = small_jobs("workers=2,fragments=8,window=4")
    run = new_run("atp", atp({}).conduct, jobs, fabric, Conditions(slots=8))
    old = run.world.server_index[0].tolist()
    order = run.world.unused[0].tolist()
    assert sorted(order) == list(range(8)) != order  # shuffled
    for seq, flags in ((2, (COLLIDED, 0)), (3, (0, 0))):
        for worker, flag in enumerate(flags):
            slot = int(new_packet(run, flag, 0, seq, 0, jobs[0].server))
            row = run.world.extra[slot]
            row["bits"], row["value"] = 1 << worker, 1
            take_gradient(run, slot, np.int64(1000))
    first = next(slot for slot in order if slot not in old)
    assert (run.world.sums["index"][2], run.world.sums["next"][2]) == (old[2], first)
    assert (run.world.sums["index"][3], run.world.sums["next"][3]) == (old[3], old[3])
    assert run.world.server_index[0].tolist() == [*old[:2], first, old[3]]


def test_a_saturated_sum_starts_again_in_floats():
    jobs, fabric = small_jobs("workers=2,fragments=4,window=4")
    run = new_run("atp", atp({}).conduct, jobs, fabric, Conditions(slots=8))

    def arrive(bits: int, value: int, flags: int = 0) -> None:
        slot = int(new_packet(run, flags, 0, 0, 0, jobs[0].server))
        run.world.extra["bits"][slot], run.world.extra["value"][slot] = bits, value
        take_gradient(run, slot, np.int64(1000))

    entry, most = run.world.sums[0], (1 << 31) - 1
    arrive(0b11, most)
    assert entry["floats"] and not entry["done"] and entry["bits"] == 0
    arrive(0b01, most, RESENT)  # a late int32 value is not mixed with floats
    assert entry["bits"] == 0
    arrive(0b01, most - 3, FLOATS)
    arrive(0b01, most - 3, FLOATS)
    arrive(0b10, most - 4, FLOATS)
    assert entry["done"] and entry["value"] == 2 * most - 7
    assert run.memory.tally["overflows"][0] == 1


def test_sums_beyond_int32_are_exact_at_the_workers():
    jobs, fabric = small_jobs("workers=3,fragments=200,iterations=2,window=32,overflow=0.1")
    found = simulate(atp({}), jobs, fabric, Conditions(slots=64))  # raises for another sum
    overflows = int(found.tally["overflows"][0])
    assert 15 < overflows < 70 and found.tally["resent"][0] >= 3 * overflows
    assert found.tally["results"][0] == 3 * 2 * 200
    plain = simulate(no_aggregation({}), jobs, fabric, Conditions(slots=64))
    assert plain.tally["overflows"][0] == 0  # the PS adds floats
