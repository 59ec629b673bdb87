"""Owners, saturating sums and values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from rocescope.replay.aggregation.state import (
    MOST_WORKERS,
    SEQ_BITS,
    added,
    owner_of,
    saturated,
    value_of,
)

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
