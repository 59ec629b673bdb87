"""Stage map."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from captures import DATA, data
from clusters import planned
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.merge import MergeCounts, marks_of, merge_tables
from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.cluster.split import (
    KEY,
    Capture,
    Chunks,
    MarkedTables,
    Outline,
    chunks_of,
    in_order,
    map_capture,
)
from rocescope.cluster.work import Work, read_plan, read_record

# Stage map.


def result(folder: str) -> Capture:
    plan = read_plan(Work(folder))
    return read_record(os.path.join(folder, "map", "0", "capture"), Capture, plan.digest)


def test_what_is_told_of_a_capture(tmp_path: Path) -> None:
    folder = planned(tmp_path, [str(data("c10"))], 2)
    told = []
    map_capture(folder, 0, told.append)
    found = result(folder)
    assert sum(found.table_rows) == found.summary.roce_packets == told[-1].packets == 605
    assert found.addresses == ["10.0.0.1", "10.0.0.2"]
    assert [message.kind for _, message in found.cm][:2] == ["REQ", "REP"]
    assert "capture" in os.listdir(tmp_path / "map" / "0")


def test_a_done_task_reads_nothing_again(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    shutil.copy(data("c10"), path)
    folder = planned(tmp_path / "w", [str(path)], 1)
    map_capture(folder, 0)
    path.unlink()
    map_capture(folder, 0)
    with pytest.raises(UsageError, match="captures 0 to 0"):
        map_capture(folder, 1)


def test_a_cut_capture_is_split_up_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    whole = data("c10").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    folder = planned(tmp_path / "w", [str(path)], 1)
    map_capture(folder, 0)
    assert result(folder).summary.damaged_places == 1
    assert 0 < sum(result(folder).table_rows) < 605


def test_mrc_is_refused(tmp_path: Path) -> None:
    from rocescope import cli

    path = tmp_path / "mrc.pcap"
    assert cli.run(["generate", "mrc", "-o", str(path), "--messages", "1"]) == 0
    folder = planned(tmp_path / "w", [str(path)], 1)
    with pytest.raises(UsageError, match="holds MRC packets"):
        map_capture(folder, 0)
    assert os.listdir(tmp_path / "w" / "map") == []


def test_paths_are_those_of_the_plan_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA)
    folder = planned(tmp_path / "w", [data("c10").name], 1)
    monkeypatch.chdir(tmp_path)
    map_capture("w", 0)
    assert os.getcwd() == str(tmp_path)
    assert result(folder).summary.name == data("c10").name


def test_the_folder_of_the_plan_may_be_gone_unless_paths_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    shutil.copy(data("c10"), tmp_path / "here" / "c.pcap")
    monkeypatch.chdir(tmp_path / "here")
    absolute = planned(tmp_path / "a", [str(data("c10"))], 1)
    relative = planned(tmp_path / "r", ["c.pcap"], 1)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "here")
    map_capture(absolute, 0)
    assert result(absolute).summary.roce_packets == 605
    with pytest.raises(UnreadableInput, match=r"/here: no such folder here: the plan"):
        map_capture(relative, 0)


IN_A_PROCESS = f"import sys; sys.path[:] = {sys.path!r}\n"


@pytest.mark.thorough
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """The limit of a file's size fails as a full disk does."""
    folder = planned(tmp_path, [str(data("i03"))], 1)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{IN_A_PROCESS}from rocescope import cli; sys.argv[1:] = "
            f"['cluster', 'map', '0', '--work', {folder!r}]; cli.main()",
        ],
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == RocescopeError.exit_code
    assert done.stderr.startswith("rocescope: cannot write")
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "map") == []
    map_capture(folder, 0)
    assert sum(result(folder).table_rows) > 0


# The order of rows, told from the times of tables alone, against the merge that reads them.

TIMES = st.lists(st.integers(0, 30), max_size=12)
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


def rows_in_order(table: PacketTable) -> PacketTable:
    return table.take(np.argsort(table.time_ns, kind="stable"))


def chunks(captures: list[list[PacketTable]], rows: int = 1) -> Chunks:
    return chunks_of([marked(tables, rows) for tables in captures], rows)


def marked(tables: list[PacketTable], rows: int) -> MarkedTables:
    marks = [marks_of(rows_in_order(t).time_ns, rows) for t in tables if len(t)]
    return MarkedTables(
        np.array([len(t) for t in tables], np.int64),
        np.concatenate([np.zeros(0, np.int64), *marks]),
        frozenset(number for number, t in enumerate(tables) if speaks(t)),
    )


def speaks(table: PacketTable) -> bool:
    """Whether a table counts as one with connection management."""
    return len(table) % 4 == 3


def reading(tables: list[PacketTable], decoded: list[PacketTable]) -> Iterator[PacketTable]:
    for table in tables:
        decoded.append(table)
        yield table


@examples(300)
@given(CAPTURES, st.sampled_from([1, 2, 5, 9, 200, 1000]))
def test_chunks_and_order_are_those_of_the_merge(
    captures: list[list[list[int]]], rows: int
) -> None:
    """Tables of any disorder, inside and one after the other, and empty ones."""
    tables = [tables_of(capture, tap) for tap, capture in enumerate(captures)]
    counts = MergeCounts()
    decoded: list[PacketTable] = []

    def apart() -> bool:
        read = decoded.copy()
        decoded.clear()
        return any(speaks(table) for table in read)

    expected = [
        list(zip(t.tap.tolist(), t.psn.tolist(), strict=True))
        for t in merge_tables([reading(c, decoded) for c in tables], counts, rows, apart)
    ]
    order = chunks(tables, rows)
    found: list[list[tuple[int, int, int, int]]] = [[] for _ in range(order.count)]
    late = 0
    for source, capture in enumerate(tables):
        for number, unsorted in enumerate(capture):
            if not len(unsorted):
                continue
            table = rows_in_order(unsorted)
            late += order.late_rows(source, number, table.time_ns)
            keys = np.zeros(len(table), KEY)
            order.key_rows(keys, source, number, table.time_ns)
            for row, (chunk, time, front, _) in enumerate(keys.tolist()):
                assert time == table.time_ns[row]
                assert front % len(tables) == source
                found[chunk].append((time, front, source, int(table.psn[row])))
    merged = [[(s, p) for *_, s, p in sorted(rows, key=lambda r: r[:2])] for rows in found]
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
    before: list[int] = [0]

    def apart() -> bool:
        before.append(len(decoded))
        return any(speaks(tables[source][number]) for source, number in decoded[before[-2] :])

    passed_on = [
        len(decoded)
        for _ in merge_tables([noted(s, c) for s, c in enumerate(tables)], rows=4, apart=apart)
    ]
    order = chunks(tables, 4)
    assert order.decoding() == decoded
    assert order.count == len(passed_on)
    for place, (source, number) in enumerate(decoded):
        known = sum(count <= place for count in passed_on)
        known = min(known, max(order.count - 1, 0))
        assert order.known_in(source, number) == known
        goes_with = known if place < before[1] else known + 1
        if speaks(tables[source][number]):
            assert order.goes_with(source, number) == goes_with


def test_one_capture_keeps_its_tables_and_its_order() -> None:
    order = chunks([tables_of([[5, 3], [], [1]], 0)])
    assert (order.single, order.count) == (True, 3)
    keys = np.zeros(2, KEY)
    for table in (0, 2):
        order.key_rows(keys[:1], 0, table, np.array([5]))
        assert keys.tolist() == [(table, 0, 0, 0), (0, 0, 0, 0)]
        assert (order.known_in(0, table), order.goes_with(0, table)) == (table, table)
    assert order.late_rows(0, 2, np.array([1])) == 0


def test_captures_without_rows_have_no_chunk() -> None:
    order = chunks([tables_of([[]], 0), tables_of([], 1)])
    assert (order.count, order.decoding()) == (0, [(0, 0)])
    assert order.goes_with(0, 0) == 0


def test_keys_sort_by_chunk_time_capture_and_row() -> None:
    keys = np.array([(1, 5, 0, 0), (0, 9, 1, 3), (0, 9, 0, 7), (0, 9, 1, 2), (0, 8, 1, 9)], KEY)
    assert in_order(keys).tolist() == [4, 2, 3, 1, 0]


def test_a_partition_without_rows_has_an_empty_outline() -> None:
    assert (len(Outline().flow_keys), Outline().packets) == (0, 0)
