"""Where a merge cuts its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.merge import (
    BATCH_ROWS,
    Limit,
    Marked,
    MergeCounts,
    OrderCounts,
    cuts,
    in_time_order,
    marks_in,
    marks_of,
    merge_tables,
)
from rocescope.analyzer.wire.packets import COLUMNS, PacketTable

# Where a merge cuts its sources.

TIMES = st.lists(st.integers(0, 500), min_size=1, max_size=300).map(sorted)
SIZES = st.sampled_from([1, 7, 64, 129, 640, 5000])


def marked(source: int, times: list[int], rows: int) -> Marked:
    marks = marks_of(np.array(times, np.int64), rows)
    assert len(marks) == marks_in(len(times), rows)
    return Marked(source, len(times), marks, rows)


def sorts_up_to(times: list[int], source: int, limit: Limit) -> int:
    return sum((time, source) <= limit for time in times)


@given(TIMES, st.integers(0, 2), st.tuples(st.integers(-1, 501), st.integers(0, 2)), SIZES)
def test_the_rows_due_are_known_to_half_a_step(
    times: list[int], source: int, limit: Limit, rows: int
) -> None:
    table = marked(source, times, rows)
    assert (table.first_ns, table.end) == (times[0], (times[-1], source))
    exact = sorts_up_to(times, source, limit)
    assert abs(table.due(limit) - exact) <= max(rows // 64, 1) // 2
    assert table.due(limit) == table.take(limit)
    assert table.due(limit) == 0


@given(st.lists(TIMES, min_size=1, max_size=4), SIZES)
def test_every_cut_takes_rows_and_in_the_end_all(sources: list[list[int]], rows: int) -> None:
    waiting = {s: marked(s, times, rows) for s, times in enumerate(sources)}
    left = dict(enumerate(sources))

    def read() -> tuple[Sequence[Marked], bool]:
        return [waiting[s] for s, times in left.items() if times], False

    sizes = [0]
    for limit, begins in cuts(read, rows):
        taken = 0
        for source, times in left.items():
            count = sorts_up_to(times, source, limit)
            taken += count
            left[source] = times[count:]
        assert taken
        sizes += [taken] if begins else [sizes.pop() + taken]
    assert sum(sizes) == sum(map(len, sources))
    unsure = len(sources) * max(rows // 64, 1)
    assert all(size >= rows // 2 - unsure for size in sizes[:-1])


# Merging the tables of parallel taps.


def table(times: list[int], tap: int, first_psn: int = 0) -> PacketTable:
    """Rows with these times; the PSN counts rows of a source, so that a row can be told."""
    made = PacketTable.zeros(len(times))
    made.time_ns[:] = times
    made.tap[:] = tap
    made.psn[:] = first_psn + np.arange(len(times))
    made.opcode[:] = made.psn % 251
    return made


def source(tables: list[list[int]], tap: int) -> list[PacketTable]:
    made, psn = [], 0
    for times in tables:
        made.append(table(times, tap, psn))
        psn += len(times)
    return made


def rows(tables: list[PacketTable]) -> list[tuple[int, int, int]]:
    return [
        (int(t.time_ns[i]), int(t.tap[i]), int(t.psn[i])) for t in tables for i in range(len(t))
    ]


def merged(
    sources: list[list[PacketTable]], counts: MergeCounts | None = None, size: int = BATCH_ROWS
) -> list[tuple[int, int, int]]:
    return rows(list(merge_tables([iter(s) for s in sources], counts, size)))


def test_a_single_source_is_handed_through_uncopied_and_in_capture_order() -> None:
    tables = [table([5, 3, 4], 0), table([], 0), table([1], 0)]
    assert all(a is b for a, b in zip(merge_tables([iter(tables)]), tables, strict=True))


def test_no_source_gives_nothing() -> None:
    assert list(merge_tables([])) == []
    assert merged([[], [table([], 1)]]) == []


def test_interleaves_with_every_column() -> None:
    left, right = table([1, 3, 5], 0), table([2, 3, 4, 9], 1)
    (first, second) = merge_tables([iter([left]), iter([right])], rows=6)
    joined = PacketTable.concatenate([left, right])
    order = [0, 3, 1, 4, 5, 2]
    for c in COLUMNS:
        assert getattr(first, c.name).tolist() == getattr(joined, c.name)[order].tolist()
        assert getattr(first, c.name).dtype == c.dtype
    assert rows([second]) == [(9, 1, 3)]


def test_rows_alone_in_their_span_are_not_copied() -> None:
    early, late = table([1, 2, 3], 0), table([10, 11], 1)
    first, second = merge_tables([iter([early]), iter([late])], rows=3)
    assert np.shares_memory(first.time_ns, early.time_ns)
    assert np.shares_memory(second.time_ns, late.time_ns)


def test_equal_times_over_table_borders_keep_the_order_of_the_sources() -> None:
    sources = [source([[1, 5], [5, 5], [5, 6]], 0), source([[5], [5, 5, 7]], 1)]
    expected = [(1, 0, 0), *[(5, 0, i) for i in range(1, 5)], *[(5, 1, i) for i in range(3)]]
    assert merged(sources) == [*expected, (6, 0, 5), (7, 1, 3)]


sorted_tables = st.lists(st.integers(0, 60), max_size=40).flatmap(
    lambda times: st.lists(st.integers(0, 40), max_size=5).map(
        lambda cuts: [
            sorted(times)[a:b]
            for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(times)], strict=True)
        ]
    )
)


@given(st.lists(sorted_tables, min_size=2, max_size=5), st.integers(1, 50))
def test_equals_a_stable_sort_of_everything(sources: list[list[list[int]]], size: int) -> None:
    made = [source(tables, tap) for tap, tables in enumerate(sources)]
    counts = MergeCounts()
    everything = [row for tables in made for row in rows(tables)]
    assert merged(made, counts, size) == sorted(everything, key=lambda row: row[0])
    assert counts == MergeCounts(0, 0)


FAR = st.sampled_from([-(1 << 63), -(1 << 62), -1, 0, 1, 1 << 62, (1 << 63) - 1])


@given(
    st.lists(st.lists(st.lists(FAR, max_size=4), max_size=4), min_size=2, max_size=3),
    st.integers(1, 10),
)
def test_times_further_apart_than_64_bits_are_merged_too(
    sources: list[list[list[int]]], size: int
) -> None:
    made = [source(tables, tap) for tap, tables in enumerate(sources)]
    everything = [row for tables in made for row in rows(tables)]
    counts = MergeCounts()
    assert sorted(merged(made, counts, size)) == sorted(everything)
    backwards = sum(a > b for tables in sources for t in tables for a, b in pairwise(t))
    assert counts.sorted_rows == backwards
    for tables in made:
        held = list(in_time_order(iter(tables), OrderCounts()))
        assert sorted(rows(held)) == sorted(rows(tables))


@given(
    st.lists(st.lists(st.lists(st.integers(0, 60), max_size=8), max_size=5), max_size=4),
    st.integers(1, 50),
)
def test_of_sources_that_are_not_sorted_nothing_is_lost_and_sizes_change_no_order(
    sources: list[list[list[int]]], size: int
) -> None:
    made = [source(tables, tap) for tap, tables in enumerate(sources)]
    everything = [row for tables in made for row in rows(tables)]
    single, many = MergeCounts(), MergeCounts()
    in_order = merged(made, single, 1)
    assert sorted(in_order) == sorted(everything)
    assert (merged(made, many, size), many) == (in_order, single)


def test_taps_with_like_traffic_give_tables_of_even_size() -> None:
    """Their tables end together: all rows are due at once, then one after the other."""
    sources = [
        [table(list(range(1000 * i + tap, 1000 * i + tap + 1000, step)), tap) for i in range(20)]
        for tap, step in enumerate((1, 1, 1, 4, 4, 5))
    ]
    sizes = [len(t) for t in merge_tables([iter(s) for s in sources], rows=900)]
    assert sum(sizes) == 20 * (3 * 1000 + 2 * 250 + 200)
    assert all(450 < size <= 1350 for size in sizes[:-1])


def test_disorder_inside_a_table_is_sorted_and_between_tables_counted() -> None:
    counts = MergeCounts()
    sources = [source([[1, 4, 2], [3, 9]], 0), source([[0, 8]], 1)]
    assert [r[0] for r in merged(sources, counts)] == [0, 1, 2, 4, 3, 8, 9]
    assert counts == MergeCounts(sorted_rows=1, late_rows=1)


def test_holds_one_table_per_source() -> None:
    """A source is asked for its next table when it has no rows left; few of them still wait."""
    asked: list[int] = []

    def steady(tap: int) -> Iterator[PacketTable]:
        for i in range(50):
            asked.append(tap)
            yield table(list(range(i * 10, i * 10 + 10)), tap)

    handed_on = 0
    for part in merge_tables([steady(0), steady(1), steady(2)], rows=8):
        assert len(asked) * 10 - handed_on <= 30 + 8 + 8 // 2
        handed_on += len(part)
    assert handed_on == 1500


def test_rows_stay_apart_from_those_that_are_read_after_them() -> None:
    asked: list[int] = []

    def noted(tap: int) -> Iterator[PacketTable]:
        for i in range(4):
            asked.append(tap)
            yield table([10 * i, 10 * i + 1], tap)

    before = []

    def apart() -> bool:
        before.append(len(asked))
        return len(asked) == 6  # the second tap has just been asked for its third table

    tables = list(merge_tables([noted(0), noted(1)], rows=100, apart=apart))
    assert [len(t) for t in tables] == [8, 8]
    assert before == [2, 3, 4, 5, 6, 7, 8, 8, 8]
