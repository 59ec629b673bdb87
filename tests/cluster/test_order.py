"""The order of rows, told from the times of tables alone, against the merge that reads them."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.merge import MergeCounts, merge_tables
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.cluster.order import Chunks, chunks_of

TIMES = st.lists(st.integers(0, 30), max_size=4)
CAPTURES = st.lists(st.lists(TIMES, max_size=5), min_size=2, max_size=4)


def tables_of(capture: list[list[int]], tap: int) -> list[PacketTable]:
    tables, psn = [], 0
    for times in capture:
        table = PacketTable.zeros(len(times))
        table.time_ns[:], table.tap[:] = times, tap
        table.psn[:] = psn + np.arange(len(times))
        psn += len(times)
        tables.append(table)
    return tables


def in_order(table: PacketTable) -> PacketTable:
    return table.take(np.argsort(table.time_ns, kind="stable"))


def chunks(captures: list[list[PacketTable]]) -> Chunks:
    return chunks_of(
        [np.array([len(t) for t in c], np.int64) for c in captures],
        [np.array([t.time_ns.max() if len(t) else 0 for t in c], np.int64) for c in captures],
    )


@examples(300)
@given(CAPTURES)
def test_chunks_and_order_are_those_of_the_merge(captures: list[list[list[int]]]) -> None:
    """Tables of any disorder, inside and one after the other, and empty ones."""
    tables = [tables_of(capture, tap) for tap, capture in enumerate(captures)]
    counts = MergeCounts()
    expected = [
        list(zip(t.tap.tolist(), t.psn.tolist(), strict=True))
        for t in merge_tables([iter(c) for c in tables], counts, apart=lambda: True)
    ]
    order = chunks(tables)
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(order.count)]
    late = 0
    for source, capture in enumerate(tables):
        for number, unsorted in enumerate(capture):
            if not len(unsorted):
                continue
            table = in_order(unsorted)
            late += order.late_rows(source, number, table.time_ns)
            places = order.of_rows(source, number, table.time_ns)
            for row, chunk in enumerate(places.tolist()):
                found[chunk].append((int(table.time_ns[row]), source, int(table.psn[row])))
    merged = [[(s, p) for _, s, p in sorted(rows, key=lambda r: r[:2])] for rows in found]
    assert merged == expected
    assert late == counts.late_rows


@examples(100)
@given(CAPTURES)
def test_tables_are_decoded_in_the_order_of_the_merge(captures: list[list[list[int]]]) -> None:
    decoded: list[tuple[int, int]] = []

    def noted(source: int, tables: list[PacketTable]):
        for number, table in enumerate(tables):
            decoded.append((source, number))
            yield table

    tables = [tables_of(capture, tap) for tap, capture in enumerate(captures)]
    before: list[int] = []

    def apart() -> bool:
        before.append(len(decoded))
        return True

    for _ in merge_tables([noted(s, c) for s, c in enumerate(tables)], apart=apart):
        pass
    order = chunks(tables)
    assert order.decoding() == decoded
    for place, (source, number) in enumerate(decoded):
        chunk = next((k for k, count in enumerate(before) if place < count), len(before))
        assert order.decoded[source][number] == chunk


def test_one_capture_keeps_its_tables_and_its_order() -> None:
    order = chunks([tables_of([[5, 3], [], [1]], 0)])
    assert (order.single, order.count) == (True, 3)
    assert order.of_rows(0, 0, np.array([5, 3])).tolist() == [0, 0]
    assert order.of_rows(0, 2, np.array([1])).tolist() == [2]
    assert order.late_rows(0, 2, np.array([1])) == 0
