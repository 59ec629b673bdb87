"""Values to members: exact remainders, ranges and thresholds, for any group."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.reduction import choose_by_unit, choose_one_group, pack_groups
from rocescope.replay.hashing.settings import Group, equal_cost

WEIGHTS = st.lists(st.integers(0, 300), min_size=1, max_size=40).filter(any)


def plain(value: int, group: Group, reduction: str, bits: int) -> int:
    """What the documents say, in whole numbers."""
    if group.buckets is not None:
        return int(group.buckets[value % len(group.buckets)])
    weights = group.weights.tolist()
    if reduction == "threshold":
        total, cumulative = sum(weights), 0
        for member, weight in enumerate(weights):
            cumulative += weight
            # DIV_ROUND_CLOSEST of positive numbers: halves go up.
            if value <= int(Fraction(cumulative << bits, total) + Fraction(1, 2)) - 1:
                return member
        raise AssertionError("the last threshold is the highest value")
    divisor = int(np.gcd.reduce(weights))
    table = [m for m, weight in enumerate(weights) for _ in range(weight // divisor)]
    if reduction == "modulo":
        return table[value % len(table)]
    return table[value * len(table) >> bits]


def chosen(values, group, reduction, bits):
    packed = pack_groups([equal_cost(3), group], reduction, bits)
    array = np.array([values], np.uint32)
    one, each = (np.empty(array.shape, np.uint16) for _ in range(2))
    choose_one_group(array, packed, np.int64(1), one)
    choose_by_unit(array, packed, np.ones(array.shape, np.int32), each)
    assert one.tolist() == each.tolist()
    return one[0].tolist()


def near(weights: list[int], bits: int) -> list[int]:
    """Values beside every border of a group, where rounding shows."""
    total, cumulative, found = sum(weights), 0, {0, (1 << bits) - 1}
    for weight in weights:
        cumulative += weight
        border = (cumulative << bits) // total
        found |= {border + step for step in (-2, -1, 0, 1, 2)}
    return sorted(v for v in found if 0 <= v < 1 << bits)


@given(WEIGHTS, st.sampled_from([8, 16, 31, 32]), st.lists(st.integers(0, (1 << 32) - 1)))
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_any_weights(reduction, weights, bits, values):
    group = Group(np.array(weights))
    values = [v % (1 << bits) for v in values] + near(weights, bits)
    assert chosen(values, group, reduction, bits) == [
        plain(v, group, reduction, bits) for v in values
    ]


@pytest.mark.thorough
@examples(25)
@given(st.integers(1, 65_535), st.integers(0, (1 << 32) - 1))
@example(65_535, (1 << 32) - 1)
@example(1, (1 << 32) - 1)
@example(512, 511)
@example(511, 511 * 8_405_024 - 1)
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_groups_of_any_size(reduction, size, value):
    group = equal_cost(size)
    values = [value, (1 << 32) - 1, value // size * size]
    assert chosen(values, group, reduction, 32) == [plain(v, group, reduction, 32) for v in values]


@pytest.mark.thorough
@pytest.mark.parametrize("size", [*range(1, 20), 64, 127, 512])
def test_every_border_of_equal_groups(size):
    values = near([1] * size, 31)
    group = equal_cost(size)
    assert chosen(values, group, "threshold", 31) == [
        plain(v, group, "threshold", 31) for v in values
    ]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(0, (1 << 31) - 1))
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_resilient_groups_are_indexed_by_the_remainder(reduction, buckets, value):
    group = Group(np.ones(5, np.int64), np.array(buckets, np.uint16))
    assert chosen([value], group, reduction, 31) == [buckets[value % len(buckets)]]


def test_units_without_a_group_get_member_0():
    packed = pack_groups([equal_cost(4)], "modulo", 16)
    out = np.full((1, 3), 9, np.uint16)
    values = np.array([[3, 3, 3]], np.uint32)
    choose_by_unit(values, packed, np.array([[0, -1, 7]], np.int32), out)
    assert out.tolist() == [[3, 0, 0]]


@pytest.mark.parametrize(
    "group",
    [
        Group(np.zeros(0, np.int64)),
        Group(np.zeros(3, np.int64)),
        Group(np.array([1, -1])),
        Group(np.ones(65_536, np.int64)),
        Group(np.array([65_535, 2])),
        Group(np.ones(2, np.int64), np.array([], np.uint16)),
        Group(np.ones(2, np.int64), np.array([0, 2], np.uint16)),
    ],
)
def test_impossible_groups(group):
    with pytest.raises(UsageError):
        pack_groups([group], "modulo", 16)
    with pytest.raises(UsageError):
        equal_cost(0)
