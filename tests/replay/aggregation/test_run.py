"""Runs: memory, windows, the same result for the same seed, the end of the simulated time."""

from __future__ import annotations

import numpy as np
import pytest
from aggregating import small_jobs

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.run import Conditions, _index, simulate
from rocescope.replay.aggregation.schemes.atp import atp
from rocescope.replay.aggregation.schemes.switchml import switchml


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
