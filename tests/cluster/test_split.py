"""Partitions by host pair."""

from __future__ import annotations

import inspect
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import DATA, data
from clusters import SPRAYED, in_tasks, planned
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.merge import MergeCounts, marks_of, merge_tables
from rocescope.analyzer.decode.mirrors import MirrorOptions
from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.filtering.compiler import Ranks
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.summary.names import PlaneBy
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import UsidFormat
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import reduce_partition
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
from rocescope.cluster.work import (
    Partitions,
    PlannedOptions,
    Work,
    analyze_options,
    check_unchanged,
    make_plan,
    read_plan,
    read_record,
    write_plan,
)

# Partitions by host pair.

# Partitions by host pair.

ADDRESSES = [f"10.0.{i // 250}.{i % 250}" for i in range(500)] + ["fd00::1", "fd00::2"]


@given(st.lists(st.tuples(st.integers(0, 501), st.integers(0, 501))), st.integers(1, 9))
def test_both_directions_have_one_partition_whatever_the_numbers(
    pairs: list[tuple[int, int]], count: int
) -> None:
    one, other = Partitions(count), Partitions(count)
    one.see(ADDRESSES[:100])
    one.see(ADDRESSES)
    other.see(ADDRESSES[::-1])
    src, dst = (np.array([pair[i] for pair in pairs], np.uint32) for i in range(2))
    found = one.of(src, dst)
    assert np.array_equal(found, one.of(dst, src))
    assert np.array_equal(found, other.of(501 - dst, 501 - src))
    assert ((found >= 0) & (found < count)).all()


def test_pairs_spread_over_the_partitions() -> None:
    partitions = Partitions(8)
    partitions.see(ADDRESSES)
    src, dst = np.triu_indices(64, 1)
    share = np.bincount(partitions.of(src.astype(np.uint32), dst.astype(np.uint32)), minlength=8)
    assert share.min() > len(src) / 8 * 0.7


def test_an_ipv4_address_and_its_gid_are_one_host() -> None:
    partitions = Partitions(1 << 20)
    partitions.see(["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"])
    one, gid = (
        partitions.of(np.array([n], np.uint32), np.array([2], np.uint32)).item() for n in (0, 1)
    )
    assert one == gid


# The plan: what it holds, and what tasks do not compute.

OPTIONS = AnalyzeOptions()


def test_a_plan_comes_back(tmp_path: Path) -> None:
    options = AnalyzeOptions(
        path_by="tap",
        window_ns=5,
        filter="not cnp",
        concat=False,
        tap_names={SPRAYED[0]: os.path.basename(SPRAYED[0])},
        udp_ports=(4791, 9),
        icrc=True,
        link_rate_bits_per_second=10**9,
        max_flows=99,
        flow_label="outer",
        usid=UsidFormat(48, 16),
    )
    work = Work(planned(tmp_path, SPRAYED, 7, options))
    plan = read_plan(work)
    assert analyze_options(plan) == options
    assert plan.partitions == 7
    assert [source.taps_before for source in plan.sources] == list(range(12))
    assert [tap.name for tap in plan.taps] == [os.path.basename(path) for path in SPRAYED]
    assert plan.many_taps
    write_plan(work, plan)  # the same again is no other plan


def test_another_analysis_needs_another_folder(tmp_path: Path) -> None:
    planned(tmp_path, SPRAYED[:1], 2)
    with pytest.raises(UsageError, match="holds another analysis"):
        planned(tmp_path, SPRAYED[:1], 3)


def test_of_two_plans_at_once_the_first_stays(tmp_path: Path) -> None:
    """The other one may have found no plan in the folder."""
    work = Work(str(tmp_path))
    first, other = (make_plan(SPRAYED[:1], OPTIONS, partitions) for partitions in (2, 3))
    real = os.path.exists
    write_plan(work, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "exists", lambda p: not str(p).endswith("plan") and real(p))
        with pytest.raises(UsageError, match="holds another analysis"):
            write_plan(work, other)
    assert read_plan(work) == first


def test_no_task_takes_results_of_another_plan(tmp_path: Path) -> None:
    first, other = str(data("c10")), str(data("c40"))
    in_tasks(tmp_path, [first], 1)
    (tmp_path / "plan").unlink()
    planned(tmp_path, [other], 1)
    for task in (
        lambda: map_capture(str(tmp_path), 0),
        lambda: reduce_partition(str(tmp_path), 0),
        lambda: merge(str(tmp_path)),
    ):
        with pytest.raises(UsageError, match="is of another plan"):
            task()
    shutil.rmtree(tmp_path / "map")
    map_capture(str(tmp_path), 0)
    with pytest.raises(UsageError, match=r"reduce/0/outline is of another plan"):
        merge(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (replace(OPTIONS, filter="rank == 3"), "rank"),
    ],
)
def test_what_crosses_host_pairs_is_refused(options: AnalyzeOptions, named: str) -> None:
    with pytest.raises(UsageError, match=f"{named}.* without --cluster"):
        make_plan(SPRAYED[:1], options, 2)


REFUSED: dict[str, tuple[Any, str]] = {
    "follow": (True, "--follow"),
    "idle_ns": (1, "--idle-after"),
    "conformance": (ConformanceOptions(), "--conformance"),
    "job_logs": (("x",), "--nccl-log"),
    "flight_recorder": ("x", "--flight-recorder"),
    "nccl_inspector": ("x", "--nccl-inspector"),
    "ranks": (Ranks({}), "ranks"),
    "mirror": (MirrorOptions(), "--mirror-format"),
    "plane_by": (PlaneBy("tap"), "--plane-by"),
    "trimmed_dscps": ((12,), "--trimmed-dscp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_without_tasks_are_refused(name: str) -> None:
    value, named = REFUSED[name]
    with pytest.raises(UsageError, match=f"{named}.* without --cluster"):
        make_plan(SPRAYED[:1], replace(OPTIONS, **{name: value}), 2)


def test_every_option_is_planned_or_left_to_stage_merge_or_refused() -> None:
    planned_ones = set(PlannedOptions.__struct_fields__)
    of_merge = set(inspect.signature(merge).parameters) - {"folder", "tell"}
    groups = [planned_ones, of_merge, set(REFUSED)]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert set.union(*groups) == {field.name for field in fields(AnalyzeOptions)}


@pytest.mark.parametrize("partitions", [0, -1, 4097])
def test_numbers_of_partitions(partitions: int) -> None:
    with pytest.raises(UsageError, match="give 1 to 4096"):
        make_plan(SPRAYED[:1], OPTIONS, partitions)


def test_inputs_that_are_no_captures(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("-", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(UsageError, match="is not a file"):
            make_plan([path], OPTIONS, 2)
    with pytest.raises(UnreadableInput, match="none"):
        make_plan([str(tmp_path / "none")], OPTIONS, 2)
    with pytest.raises(UsageError, match="no capture"):
        make_plan([], OPTIONS, 2)


def test_a_file_that_changed_or_went_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    shutil.copy(data("c10"), path)
    plan = make_plan([str(path)], OPTIONS, 2)
    check_unchanged(plan, plan.sources[0])
    os.utime(path, ns=(1, 1))
    with pytest.raises(UsageError, match="changed after the plan"):
        check_unchanged(plan, plan.sources[0])
    path.unlink()
    with pytest.raises(UnreadableInput, match=r"c\.pcap: no such file"):
        check_unchanged(plan, plan.sources[0])


# Stage map.

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
