"""Seeds of switches: splitmix64 with Python's integers, and its published first outputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.hashing.seeding import SeedRange, switch_seeds

MASK = (1 << 64) - 1


def splitmix64(number):
    """Output `number`, from 0, of the sequence that begins with state 0."""
    x = (number + 1) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def test_the_twin_is_splitmix64():
    assert [splitmix64(n) for n in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=4), st.integers(1, 5))
def test_every_switch_has_its_own_seed(seeds, switches):
    found = switch_seeds(np.array(seeds, np.uint64), switches, "different")
    wanted = [[splitmix64(seed << 32 | i) >> 32 for i in range(switches)] for seed in seeds]
    assert found.tolist() == wanted
    same = np.array(seeds, np.uint64)
    assert switch_seeds(same, switches, "equal") is same


@given(st.integers(0, 50), st.integers(0, 60), st.integers(1, 9))
def test_parts_of_a_range_are_the_range(first, end, step):
    span = SeedRange(first, end, step)
    assert span.seeds == len(range(first, end, step))
    half = span.seeds // 2
    parts = [*span.part(0, half).tolist(), *span.part(half, span.seeds).tolist()]
    assert parts == list(range(first, end, step))
