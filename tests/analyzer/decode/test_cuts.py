"""Where a merge cuts its sources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.cuts import Limit, Marked, cuts, marks_in, marks_of

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
