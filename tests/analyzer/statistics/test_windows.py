"""Windowed sums: alignment, bounds and times from a hostile capture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics import windows as under_test
from rocescope.analyzer.statistics.windows import FIRST, LAST, USED, WIDTH, WindowedSums
from rocescope.kernels.kernel import kernel

I64 = np.iinfo(np.int64)
TIMES = st.one_of(
    st.integers(0, 2000), st.integers(-50, 50), st.integers(int(I64.min), int(I64.max))
)


@kernel
def same_window(time, start, width):
    return under_test.same_window(time, start, width)


@kernel
def count(start, times, column, state, slots, windows, sums):
    for i in range(start, len(times)):
        row = under_test.window_row(times[i] // state[WIDTH], state, slots, windows)
        if row < 0:
            return i
        sums[row, column] += 1
    return len(times)


def add(sums, times, column=0):
    times, done = np.array([int(t) for t in times], np.int64), 0
    while True:
        done = count(done, times, column, sums.state, sums.slots, sums.windows, sums.sums)
        if done == len(times):
            return sums
        sums.cover(int(times[done]))


def as_dict(sums):
    width, first = (int(sums.state[i]) for i in (WIDTH, FIRST))
    values = sums.values()
    return {(first + i) * width: values[i].tolist() for i in range(len(values)) if values[i].any()}


def expected(times, width, limit):
    """The smallest doubling of the width with at most `limit` windows, and its counts."""
    while times and max(times) // width - min(times) // width >= limit:
        width *= 2
    counts = {}
    for time in times:
        begin = time // width * width
        counts[begin] = [counts.get(begin, [0])[0] + 1]
    return width, counts


@given(
    st.lists(TIMES, max_size=30), st.sampled_from([1, 7, 1000, 2**60]), st.sampled_from([8, 11, 60])
)
def test_order_free_and_bounded(times, width, limit):
    sums = add(WindowedSums(width, 1, limit), times)
    assert (sums.width_ns, as_dict(sums)) == expected(times, width, limit)
    assert len(sums.values()) <= limit
    assert len(sums.sums) <= max(8, 2 * len(times))
    assert sums.column(0) == sums.values()[:, 0].tolist()


@given(st.lists(TIMES, max_size=20), st.lists(TIMES, max_size=20))
def test_merge_equals_the_whole(ours, theirs):
    merged = add(WindowedSums(3, 1, 10), ours)
    merged.add(add(WindowedSums(3, 1, 10), theirs), np.array([0], np.int32))
    whole = add(WindowedSums(3, 1, 10), ours + theirs)
    assert (merged.width_ns, as_dict(merged)) == (whole.width_ns, as_dict(whole))


def test_merge_maps_columns_and_makes_room_for_them():
    ours, theirs = add(WindowedSums(10, 1, 8), [5]), WindowedSums(10, 2, 8)
    add(add(theirs, [15, 16], 0), [15], 1)
    ours.add(theirs, np.array([3, 0], np.int32))
    assert ours.values().tolist() == [[1, 0, 0, 0], [1, 0, 0, 2]]


def test_merge_refuses_other_widths():
    with pytest.raises(ValueError, match="same initial width"):
        WindowedSums(10, 1, 8).add(add(WindowedSums(15, 1, 8), [1]), np.array([0], np.int32))


@pytest.mark.parametrize(("width", "limit"), [(0, 60), (2**60 + 1, 60), (1, 7)])
def test_refuses_what_could_overflow(width, limit):
    with pytest.raises(ValueError, match="windows of"):
        WindowedSums(width, 1, limit)


@pytest.mark.parametrize("width", [1, 7, 2**60])
@pytest.mark.parametrize("times", [(I64.min, I64.max), (I64.max, I64.min), (I64.min + 1, I64.min)])
def test_any_two_times_fit(times, width):
    sums = add(WindowedSums(width, 1, 8), times)
    assert sums.values().sum() == 2


def test_more_columns_mean_fewer_windows():
    sums = add(WindowedSums(1, 1, 100, max_cells=100), range(100))
    sums.widen(10)
    assert (sums.width_ns, len(sums.values())) == (16, 7)
    assert sums.values()[:, 0].tolist() == [16, 16, 16, 16, 16, 16, 4]


@pytest.mark.parametrize("order", [range(1, 40), (39,), (1, 3, 39, 2)])
def test_columns_that_come_one_by_one_are_as_wide_as_those_that_come_at_once(order):
    sums = add(WindowedSums(1, 1, 64, max_cells=640), range(64))
    copies = 0
    for columns in order:
        before = sums.sums
        sums.widen(columns)
        copies += sums.sums is not before
    assert (sums.columns, sums.width_ns, len(sums.values())) == (39, 4, 16)
    assert sums.values()[:, 0].tolist() == [4] * 16
    assert copies < 12


@pytest.mark.thorough
@given(TIMES, TIMES, st.sampled_from([1, 7, 2**40]))
def test_same_window_without_overflow(time, other, width):
    start = (other // width * width + 2**63) % 2**64 - 2**63  # as int64 wraps
    inside = same_window(np.int64(time), np.int64(start), np.int64(width))
    assert inside == (time // width == other // width)


def test_state_items():
    sums = add(WindowedSums(10, 1, 8), [25, 47])
    assert [int(sums.state[i]) for i in (WIDTH, FIRST, LAST)] == [10, 2, 4]
    assert sums.start_ns == 20


def test_a_wild_time_takes_memory_for_one_window():
    sums = add(WindowedSums(1, 50, 1_000_000), [*range(20), 999_000])
    assert int(sums.state[USED]) == 21
    assert sums.sums.nbytes + sums.slots.nbytes + sums.windows.nbytes < 20_000
    assert len(sums.values()) == 999_001


@pytest.mark.thorough
def test_sparing_windows_are_bounded_by_those_with_rows():
    few, far = add(WindowedSums(1, 50, 1_000_000), [*range(20), 999_000]), 1_000_000 // 20_000
    width, start, values = few.dense(sparing=True)
    assert (width, start, len(values)) == (64, 0, 999_000 // 64 + 1)
    assert (values[:, 0].sum(), values[0, 0], values[-1, 0]) == (21, 20, 1)
    many = add(WindowedSums(1, 50, 1_000_000), range(0, 999_000, far // 20))
    assert (many.dense(sparing=True)[0], len(many.dense(sparing=True)[2])) == (1, 998_999)
