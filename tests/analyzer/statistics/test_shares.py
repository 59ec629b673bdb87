"""Wilson intervals against values of the literature and their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics import windows as under_test
from rocescope.analyzer.statistics.histogram import (
    BUCKETS,
    HistogramPool,
    bucket_bounds,
    bucket_of,
    observe,
)
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.statistics.shares import (
    LISTED_PATHS,
    NOTHING,
    Carried,
    jain,
    path_shares,
    together,
    width,
    wilson,
)
from rocescope.analyzer.statistics.windows import FIRST, LAST, USED, WIDTH, WindowedSums
from rocescope.kernels.kernel import kernel

# Wilson intervals against values of the literature and their definition.

# Wilson intervals against values of the literature and their definition.


def test_values_of_the_literature():
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(29, 29) == pytest.approx((0.8830, 1), abs=5e-5)
    assert wilson(0, 0) == (0, 1)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_both_ends_are_1_96_standard_errors_from_the_share(trial):
    hits, of = trial
    low, high = wilson(hits, of)
    assert 0 <= low <= hits / of <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            error = math.sqrt(end * (1 - end) / of)
            assert abs(hits / of - end) == pytest.approx(1.959964 * error, rel=1e-4, abs=1e-12)


# Path shares: sums, fairness and the line for the rest.


@pytest.mark.parametrize("n", [1, 2, 3, 64])
def test_equal_paths(n):
    assert width(np.full(n, 1234)) == pytest.approx(n)
    assert jain(np.full(n, 1234)) == pytest.approx(1)


def test_unequal_paths_by_hand():
    assert width(np.array([3, 1])) == pytest.approx(4 / 3 ** (3 / 4))
    assert jain(np.array([3, 1])) == pytest.approx(16 / 20)
    assert width(np.array([5, 0])) == 1
    assert jain(np.array([5, 0, 0, 0])) == pytest.approx(1 / 4)
    assert width(np.array([1, 1, 2])) == pytest.approx(math.exp(1.5 * math.log(2)))


def test_unused_paths_have_no_times():
    assert together([]) == together([NOTHING]) == NOTHING
    one, other = Carried(2, 200, 1, 0, 7, 9), Carried(1, 50, 0, 1, 3, 8)
    assert together([one, NOTHING, other]) == Carried(3, 250, 1, 1, 3, 9)
    used, unused = path_shares([("a", one), ("b", NOTHING)])
    assert (used.share, used.first_time_ns, used.last_time_ns) == (1, 7, 9)
    assert (unused.share, unused.first_time_ns, unused.last_time_ns) == (0, None, None)


@pytest.mark.parametrize(("paths", "last"), [(LISTED_PATHS, "63"), (LISTED_PATHS + 1, "2 more")])
def test_the_last_line_stands_for_the_rest(paths, last):
    shares = path_shares([(str(i), Carried(1, 10, 0, 0, i, i)) for i in range(paths)])
    assert (len(shares), shares[-1].path) == (LISTED_PATHS, last)
    assert sum(s.wire_bytes for s in shares) == 10 * paths
    assert sum(s.share for s in shares) == pytest.approx(1)
    assert shares[-1].last_time_ns == paths - 1


# Histograms: exact where they say so, within a sixteenth elsewhere, never out of range.

LARGEST = (1 << 63) - 1


@kernel
def observe_all(histograms, flow, kind, values):
    for i in range(len(values)):
        observe(histograms, flow, kind, values[i])


def filled(*values, flow=0):
    pool = HistogramPool(2)
    pool.grow(flow + 1)
    observe_all(pool.arrays, flow, 1, np.array(values, np.int64))
    return pool


@given(st.integers(0, LARGEST))
def test_every_value_is_in_its_bucket(value):
    bucket = int(bucket_of(value))
    low, high = bucket_bounds(bucket)
    assert 0 <= bucket < BUCKETS
    assert low <= value < high
    assert high - low <= max(1, value / 16)


@given(st.lists(st.integers(-5, 10**9), min_size=1, max_size=50))
def test_statistics_of_a_few_values(values):
    found = filled(*values).quantiles(0, 1)
    values = sorted(max(v, 0) for v in values)
    assert (found.count, found.min, found.max) == (len(values), values[0], values[-1])
    assert found.mean == pytest.approx(sum(values) / len(values))
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    assert low * 0.93 - 1 <= found.p50 <= high * 1.07 + 1


def test_sums_of_centuries_stay_at_their_limit():
    """Damaged time stamps: a sum that wrapped around would make a negative mean."""
    pool = filled(LARGEST, LARGEST, LARGEST)
    assert pool.quantiles(0, 1).mean == LARGEST / 3
    pool.add_all(filled(LARGEST))
    assert pool.quantiles(0, 1).mean == LARGEST / 4
    assert pool.quantiles(0, 1).max == LARGEST


@given(st.lists(st.integers(0, 10**12), max_size=20), st.lists(st.integers(0, 10**12), max_size=20))
def test_parts_merge_and_add_up(one, other):
    added, merged, whole = filled(*one), filled(*one), filled(*one, *other)
    added.add_all(filled(*other, flow=3))
    assert added.quantiles(0, 1) == whole.quantiles(0, 1)
    assert added.bins(0, 1) == whole.bins(0, 1)
    merged.merge(filled(*other, flow=3), np.array([8, 9, 10, 6], np.int32))
    assert merged.bins(0, 1) == filled(*one).bins(0, 1)
    assert merged.bins(6, 1) == filled(*other).bins(0, 1)
    assert merged.quantiles(7, 1) is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
)
def test_histograms_of_kept_flows_go_on(before, stays, after):
    pool, alone = HistogramPool(2), HistogramPool(2)
    for histograms in (pool, alone):
        histograms.grow(10)
    kept = kept_flows(np.array(stays))
    for flow, kind, value in before:
        observe_all(pool.arrays, flow, kind, np.array([value]))
        if stays[flow]:
            observe_all(alone.arrays, int(kept.number[flow]), kind, np.array([value]))
    pool.keep(kept)
    for flow, kind, value in after:
        observe_all(pool.arrays, flow, kind, np.array([value]))
        observe_all(alone.arrays, flow, kind, np.array([value]))
    for flow in range(10):
        for kind in range(2):
            assert pool.bins(flow, kind) == alone.bins(flow, kind)
            assert pool.quantiles(flow, kind) == alone.quantiles(flow, kind)
    assert pool.arrays.used.tolist() == alone.arrays.used.tolist()


# Windowed sums: alignment, bounds and times from a hostile capture.

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
