"""Runs: state, events, results."""

from __future__ import annotations

import numpy as np
import pytest
from aggregating import small_jobs
from aggregation_twin import Twin, tallies
from examples import examples
from hypothesis import given
from hypothesis import strategies as some

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.jobs import parse_jobs, place
from rocescope.replay.aggregation.network import new_packet
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions, _index, new_run, simulate
from rocescope.replay.aggregation.schemes import atp, no_aggregation, switchml
from rocescope.replay.aggregation.server import take_gradient
from rocescope.replay.aggregation.state import (
    COLLIDED,
    FLOATS,
    MOST_WORKERS,
    RESENT,
    SEQ_BITS,
    TALLY,
    added,
    owner_of,
    saturated,
    value_of,
)
from rocescope.replay.fabrics.parse import parse_fabric

# Runs: state, events, results.


def test_a_seed_gives_the_same_run_and_another_seed_another():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=200,window=32")
    one, same, other = (
        simulate(atp({}), jobs, fabric, Conditions(slots=48, seed=seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.ends_ps, same.ends_ps) and np.array_equal(one.tally, same.tally)
    assert not np.array_equal(one.ends_ps, other.ends_ps)


def test_jobs_with_slots_enough_do_not_collide_and_with_few_they_do():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=400,window=32")
    few, many = (
        simulate(atp({}), jobs, fabric, Conditions(slots=slots)) for slots in (40, 1 << 20)
    )
    assert few.tally["collisions"].sum() > 0 == many.tally["collisions"].sum()
    taken = few.usage[0].sum() / (40 * few.at_ps)
    assert 0 < taken <= 1 and (few.usage[1] <= few.usage[0]).all()


def test_the_end_of_the_simulated_time_leaves_jobs_open():
    jobs, fabric = small_jobs("workers=3,fragments=400")
    found = simulate(atp({}), jobs, fabric, Conditions(slots=4096, until_ps=1_000_000))
    assert (found.finished_ps == -1).all()


def _crc32(data: bytes) -> int:
    """CRC-32 of IEEE 802.3, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_slot_is_the_crc32_of_job_position_and_the_first_salt_that_is_free():
    jobs, _ = small_jobs("count=2,workers=2")
    index = _index(jobs, (20, 20), atp({}).conduct, (0, 0), 24)
    for number in range(2):
        used: list[int] = []
        for position in range(20):
            salt = 0
            while (slot := _crc32(bytes((number + 1, 0, position, 0, salt, 0))) % 24) in used:
                salt += 1
            used.append(slot)
        assert index[number].tolist() == used


@pytest.mark.parametrize(
    ("scheme", "slots", "spec", "said"),
    [
        (atp({}), 100, "workers=2", "window of 400 packets, more than the memory of 100"),
        (atp({}), 1 << 27, "workers=2", "more than 67,108,864 slots in all"),
        (switchml({}), 3, "count=2,workers=2", "3 slots for 2 jobs; each needs two"),
    ],
)
def test_memory_that_is_too_small(scheme, slots, spec, said):
    jobs, fabric = small_jobs(spec)
    with pytest.raises(UsageError, match=said):
        simulate(scheme, jobs, fabric, Conditions(slots=slots))


FABRICS = (
    "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G,delay=500ns",
    "leaf-spine:leaves=3,spines=2,hosts=8,rate=100G,delay=500ns",
)
SHORT = "rto=30us,first-rto=60us"
SPECS = (
    f"atp:{SHORT}", f"atp:{SHORT},slot-timeout=20us", f"atp:{SHORT},reminder=20us", f"esa:{SHORT}",
    f"esa:{SHORT},release=completion", f"esa:{SHORT},ageing=no,rehash=yes",
    f"a2tp:{SHORT},base-rtt=3us", f"a2tp:{SHORT},aggregators=1,contention=0,rehash=no",
    f"ideal:{SHORT}", f"none:{SHORT}", "switchml:rto=30us", "switchml:rto=30us,double-after=3",
)  # fmt: skip


@some.composite
def cases(draw):
    """A scheme, jobs on a small fabric, and what the network does to packets."""
    spec = draw(some.sampled_from(SPECS))
    fabric = parse_fabric(draw(some.sampled_from(FABRICS)))
    several = fabric.switches > 2
    window = draw(some.integers(2, 8))
    plans = []
    for _ in range(draw(some.integers(1, 3))):
        workers = draw(some.integers(2, 4))
        racks = draw(some.integers(1, 2)) if several else 1
        plans.append(
            f"workers={workers},racks={racks},model={draw(some.sampled_from(('comm', 'comp')))},"
            f"fragments={draw(some.integers(3, 24))},layers={draw(some.integers(1, 3))},"
            f"iterations={draw(some.integers(1, 3))},window={window},"
            f"overflow={draw(some.sampled_from((0, 0, 0.2, 1)))},"
            f"stragglers={draw(some.integers(0, 1))},slowdown=3"
        )
    share = some.sampled_from((0.0, 0.0, 0.01, 0.1))
    conditions = Conditions(
        slots=draw(some.integers(max(8, window), 24)),
        seed=draw(some.integers(0, 1000)),
        jitter=draw(some.sampled_from((0.0, 0.2, 2.0))),
        loss=draw(share),
        copies=draw(share),
        delays=draw(share),
    )
    return spec, plans, fabric.name, conditions


@examples(60, deadline=None)
@given(cases())
def test_every_gradient_is_summed_once_and_as_the_twin_says(case):
    spec, plans, name, conditions = case
    scheme, fabric = parse_schemes([spec])[0], parse_fabric(name)
    jobs = place(parse_jobs(plans), fabric)
    found = simulate(scheme, jobs, fabric, conditions)  # raises when a result is another sum

    assert (found.finished_ps >= 0).all()
    for number, job in enumerate(jobs):
        results = len(job.workers) * job.total
        assert found.tally["results"][number] == results == found.tally["sent"][number]
    twin = Twin(scheme.name.partition(":")[0], scheme.conduct, jobs, fabric, conditions)
    twin.run()
    assert [w.finished for w in twin.workers] == found.finished_ps.tolist()
    for worker, ends in zip(twin.workers, found.ends_ps.tolist(), strict=True):
        assert worker.ends == [end for end in ends if end >= 0]
    assert tallies(twin, TALLY.names) == found.tally.tolist()


INT32 = some.integers(-(1 << 31), (1 << 31) - 1)


@given(INT32, INT32)
def test_sums_saturate_as_registers_of_int32(a, b):
    assert added(a, b) == max(-(1 << 31), min((1 << 31) - 1, a + b))


@given(some.integers(0, 255), some.integers(0, 255), some.integers(0, (1 << SEQ_BITS) - 1))
def test_owners_are_not_zero_and_tell_jobs_apart(a, b, seq):
    assert owner_of(a, seq) != 0
    assert (owner_of(a, seq) == owner_of(b, seq)) == (a == b)


def test_values_differ_and_their_sums_do_not_saturate():
    values = [int(value_of(7, 0, 5, bit, 0)) for bit in range(MOST_WORKERS)]
    assert len(set(values)) == MOST_WORKERS
    assert max(map(abs, values)) * MOST_WORKERS < (1 << 31) - 1
    assert values[0] == value_of(7, 0, 5, 0, 0) != value_of(7, 0, 6, 0, 0)


def test_two_values_of_a_fragment_that_overflows_saturate():
    always = 1 << 31
    one, other = (int(value_of(7, 0, 5, bit, always)) for bit in (0, 1))
    assert not saturated(one) and saturated(added(one, other))
    some_of = [int(value_of(7, 0, seq, 0, always // 4)) > 1 << 30 for seq in range(4000)]
    assert 800 < sum(some_of) < 1200


# The PS's rules for whole, partial and repeated packets.


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
