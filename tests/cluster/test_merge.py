"""Captures after stage map: the numbers and the order of one process."""

from __future__ import annotations

import io
import lzma
import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dpkt
import msgspec
import numpy as np
import pytest
from captures import DATA, data
from clusters import REROUTED, SPRAYED, in_tasks, mapped, planned
from encapsulations import erspan2, ethernet, ipv4, udp

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.pipeline.captures import analyze, open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.track import state as st
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.cluster import merge as module
from rocescope.cluster import work as plan_module
from rocescope.cluster.captures import Captures
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import (
    TRACKED,
    merged_rows,
    read_result,
    read_state,
    reduce_partition,
    write_state,
)
from rocescope.cluster.split import Outline
from rocescope.cluster.work import ColumnWriter, Work, read_columns, read_plan

# Captures after stage map: the numbers and the order of one process.


def captures_of(folder: str) -> Captures:
    work = Work(folder)
    return Captures(work, read_plan(work))


@pytest.mark.thorough
@pytest.mark.parametrize("partitions", [1, 5])
@pytest.mark.parametrize(
    "paths", [SPRAYED, [str(data("h01"))], [str(data("c10")), str(data("h01")), str(data("c15"))]]
)
def test_rows_addresses_and_taps_are_those_of_one_process(
    tmp_path: Path, paths: list[str], partitions: int
) -> None:
    with open_captures(paths, AnalyzeOptions()) as run:
        expected = list(run._tables())
        registry = run.registry
    captures = captures_of(mapped(tmp_path, paths, partitions))
    assert captures.registry.endpoints.texts() == registry.endpoints.texts()
    assert captures.registry.tap_names == registry.tap_names
    assert [t.frames for t in captures.registry.taps.items] == [
        t.frames for t in registry.taps.items
    ]
    found = list(merged_rows([captures.rows(n) for n in range(partitions)]))
    whole = PacketTable.concatenate([table for table, _ in expected])
    merged = PacketTable.concatenate([table for _, table, _ in found])
    for name, column in whole.columns():
        assert np.array_equal(column, getattr(merged, name)), name
    assert all(len(table) == len(keys) for _, table, keys in found)
    before = np.cumsum([0, *(len(table) for table, _ in expected)])
    messages = [(before[n], m) for n, (_, said) in enumerate(expected) for m in said]
    chunk_rows = np.zeros(captures.chunks.count, np.int64)
    for chunk, table, _ in found:
        chunk_rows[chunk] += len(table)
    before = np.cumsum([0, *chunk_rows])
    assert [(before[chunk], message) for chunk, message in captures.cm] == messages


def test_a_pair_of_hosts_is_in_one_partition(tmp_path: Path) -> None:
    captures = captures_of(mapped(tmp_path, SPRAYED, 5))
    pairs = []
    for number in range(5):
        tables = [table for _, table, _ in captures.rows(number)]
        table = PacketTable.concatenate([PacketTable.zeros(0), *tables])
        low, high = np.minimum(table.src, table.dst), np.maximum(table.src, table.dst)
        pairs.append(set(zip(low.tolist(), high.tolist(), strict=True)))
    assert len(set.union(*pairs)) == sum(map(len, pairs)) == 3
    assert [len(of_part) for of_part in pairs].count(1) == 3


def test_a_capture_that_is_not_split_yet_is_named(tmp_path: Path) -> None:
    folder = planned(tmp_path, SPRAYED[:2], 2)
    with pytest.raises(UsageError, match=r"2 of 2 captures are missing: run map 0 \(.*H1-leaf1"):
        captures_of(folder)


# The analysis in tasks equals that of one process, byte for byte.

OPTIONS = AnalyzeOptions()
SENDER, RECEIVER = (str(data(f"i01_write_loss0.5_AtoB.{at}")) for at in ("atA", "atB"))
ALL = sorted(str(p) for p in DATA.glob("*.pcap*"))
CLEAN = sorted(str(p) for p in (DATA / "leafspine" / "r01_clean_write").glob("*.pcap*"))
JOB = sorted(str(p) for p in (DATA / "jobs" / "h4_pipeline_clean").glob("*.pcap.zst"))
"""Grants name the ranks."""
UNORDERED = [str(DATA / "hostile" / name) for name in ("wild_time.pcapng.zst", "set_back.pcap.zst")]


def json(analysis: Analysis) -> bytes:
    return msgspec.json.encode(analysis)


def check(tmp_path: Path, paths: list[str], options: AnalyzeOptions, partitions: list[int]) -> None:
    expected = analyze(paths, options)
    for count in partitions:
        found = in_tasks(tmp_path / str(count), paths, count, options)
        assert msgspec.to_builtins(found) == msgspec.to_builtins(expected), count
        assert json(found) == json(expected), count  # also the order of keys


@pytest.mark.parametrize(
    ("paths", "partitions"),
    [
        (SPRAYED, 5),
        (CLEAN, 2),
        ([SENDER, RECEIVER], 1),
        (UNORDERED, 2),
        ([str(data("h01"))], 7),
        ([str(data("c40"))], 3),
        (JOB, 3),
    ],
    ids=["sprayed", "clean", "two taps", "unordered", "probed", "one capture", "job"],
)
def test_parts_are_the_whole(tmp_path: Path, paths: list[str], partitions: int) -> None:
    check(tmp_path, paths, OPTIONS, [partitions])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "paths",
    [SPRAYED, REROUTED, CLEAN, [SENDER, RECEIVER], ALL, UNORDERED, JOB, *([path] for path in ALL)],
    ids=lambda paths: f"{len(paths)} {Path(paths[0]).name.split('.')[0]}",
)
def test_every_capture(tmp_path: Path, paths: list[str]) -> None:
    check(tmp_path, paths, OPTIONS, [1, 3, 5, 7])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        replace(OPTIONS, filter="not ack and psn != 5"),
        replace(OPTIONS, path_by="tap", window_ns=1_000_000, icrc=True),
        replace(OPTIONS, concat=True),
        replace(OPTIONS, tap_names={SENDER: "sender", RECEIVER: "receiver"}),
    ],
    ids=["filter", "path by tap", "concat", "named"],
)
def test_options(tmp_path: Path, options: AnalyzeOptions) -> None:
    check(tmp_path, [SENDER, RECEIVER], options, [2])


@pytest.mark.thorough
def test_files_of_one_name_and_any_order(tmp_path: Path) -> None:
    paths = SPRAYED[:4]
    random.Random(3).shuffle(paths)
    (tmp_path / "other").mkdir()
    shutil.copy(paths[0], tmp_path / "other" / Path(paths[1]).name)
    check(tmp_path, [*paths, str(tmp_path / "other" / Path(paths[1]).name)], OPTIONS, [5])


def mirrored(path: Path, captures: list[str]) -> str:
    """One capture of ERSPAN sessions, one for each of these captures; the last begins late."""
    frames = []
    for session, capture in enumerate(captures):
        with lzma.open(capture) as file:
            whole = [(time, session, frame) for time, frame in dpkt.pcap.Reader(file)]
        frames += whole[len(whole) // 3 :] if capture == captures[-1] else whole
    with path.open("wb") as out:
        writer = dpkt.pcap.Writer(out, nano=True)
        for time, session, frame in sorted(frames):
            outer = ethernet(0x0800, ipv4(47, erspan2(frame, session)))
            writer.writepkt(outer, float(time))
    return str(path)


@pytest.mark.parametrize("packet_filter", [None, "not ack"])
def test_two_captures_with_the_same_mirror_sessions(
    tmp_path: Path, packet_filter: str | None
) -> None:
    paths = [mirrored(tmp_path / f"{n}.pcap", SPRAYED[n : n + 2]) for n in (0, 2)]
    check(tmp_path, paths, replace(OPTIONS, filter=packet_filter), [3])
    check(tmp_path / "one", paths[:1], replace(OPTIONS, filter=packet_filter), [3])


def test_names_that_are_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = os.fsdecode(b"\xfe.pcap")
    shutil.copy(data("c10"), path)
    check(folder, [path], replace(OPTIONS, tap_names={path: "one"}), [2])


def test_a_cut_capture_gives_the_warnings_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    whole = data("c40").read_bytes()
    path.write_bytes(whole[: 2 * len(whole) // 3])
    check(tmp_path, [str(path), RECEIVER], OPTIONS, [3])


def send_only(host: int, psn: int, sent: int) -> bytes:
    """A SEND of one host to another; `sent` is its IPv4 identification."""
    transport = struct.pack(">BBHII", 0x04, 0x40, 0xFFFF, host, psn) + bytes(64) + bytes(4)
    frame = ethernet(0x0800, ipv4(17, udp(4791, transport), f"10.0.0.{host}", f"10.0.1.{host}"))
    return frame[:18] + struct.pack(">H", sent) + frame[20:]


def test_what_another_part_knows_of_taps_decides_what_an_overtaken_transmission_is(
    tmp_path: Path,
) -> None:
    """Host 1 retransmits PSN 40, and the first transmission passes the second tap last. That the
    taps are in series shows at host 2 only."""
    near, far = [], []
    for psn in range(41):
        near.append((psn, send_only(1, psn, 1000 + psn)))
        near.append((psn, send_only(2, psn, 1000 + psn)))
        far.append((psn + 0.5, send_only(2, psn, 1000 + psn)))
    near.append((41, send_only(1, 40, 1041)))
    far.append((42, send_only(1, 40, 1040)))
    for name, passages in (("near.pcap", near), ("far.pcap", far)):
        with (tmp_path / name).open("wb") as file:
            writer = dpkt.pcap.Writer(file, nano=True)
            for microseconds, frame in passages:
                writer.writepkt(frame, 1_700_000_000 + microseconds / 1e5)
    check(tmp_path, [str(tmp_path / name) for name in ("near.pcap", "far.pcap")], OPTIONS, [2])


@pytest.mark.thorough
def test_parts_that_depend_on_each_other_are_measured_again_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_independent", lambda outlines: False)
    check(tmp_path, SPRAYED, OPTIONS, [5])


def outline(unfollowed: int, followed: int) -> Outline:
    used = [0] * st.USED_KINDS
    used[st.UNFOLLOWED_TAPS], used[st.FOLLOWED_TAPS] = unfollowed, followed
    return Outline(used=used)


@pytest.mark.parametrize(
    ("parts", "independent"),
    [
        ([(0, 3), (0, 1)], True),
        ([(2, 0), (0, 1)], True),
        ([(2, 2), (0, 1)], True),  # it saw the tap followed only later, as the whole did
        ([(2, 0), (0, 2)], False),
        ([(0, 2), (6, 1)], False),
    ],
)
def test_parts_are_independent_unless_another_follows_what_one_took_as_unfollowed(
    parts: list[tuple[int, int]], independent: bool
) -> None:
    assert module._independent([outline(*part) for part in parts]) == independent


def test_errors_are_those_of_one_process(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(data("c10").read_bytes()[:24])
    for options in (OPTIONS, replace(OPTIONS, udp_ports=(1,))):
        paths = [str(empty)] if options is OPTIONS else [str(data("c07"))]
        with pytest.raises(UnreadableInput) as expected:
            analyze(paths, options)
        with pytest.raises(UnreadableInput) as found:
            in_tasks(tmp_path / str(len(options.udp_ports)) / paths[0][-3:], paths, 2, options)
        assert str(found.value) == str(expected.value)


def test_more_flows_than_the_limit(tmp_path: Path) -> None:
    with pytest.raises(RocescopeError, match="more than 40 flows after 79990 packets"):
        in_tasks(tmp_path, SPRAYED, 2, replace(OPTIONS, max_flows=40))


def test_missing_verdicts_are_no_end_of_the_rows(tmp_path: Path) -> None:
    in_tasks(tmp_path, [SENDER, RECEIVER], 1)
    path = tmp_path / "reduce" / "0" / "tracked.parquet"
    ColumnWriter(str(path), TRACKED).close()
    with pytest.raises(UnreadableInput, match=r"tracked\.parquet is damaged"):
        merge(str(tmp_path))


def test_a_missing_partition_is_named(tmp_path: Path) -> None:
    in_tasks(tmp_path, [RECEIVER], 3)
    shutil.rmtree(tmp_path / "reduce" / "1")
    with pytest.raises(UsageError, match="run reduce 1"):
        merge(str(tmp_path))


# Stage reduce.


@pytest.fixture(scope="module")
def sprayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(mapped(tmp_path_factory.mktemp("sprayed"), SPRAYED, 5))


@pytest.fixture
def folder(tmp_path: Path, sprayed: Path) -> str:
    shutil.copytree(sprayed, tmp_path / "w")
    return str(tmp_path / "w")


@pytest.mark.thorough
def test_a_partition_leaves_its_state_and_the_place_of_every_flow(folder: str) -> None:
    for number in range(5):
        reduce_partition(folder, number)
    plan = plan_module.read_plan(Work(folder))
    outlines = [read_result(Work(folder), plan, number, "outline") for number in range(5)]
    assert sum(len(outline.flows) for outline in outlines) == 72
    assert all(len(o.flows) == len(o.flow_keys) for o in outlines)
    for number, outline in enumerate(outlines):
        measuring = read_result(Work(folder), plan, number, "state")
        assert len(measuring.tracker) == len(outline.flows)
        tracked = read_columns(os.path.join(folder, "reduce", str(number), "tracked.parquet"))
        flow = np.concatenate([np.zeros(0, np.int32), *(piece["flow"] for piece in tracked)])
        assert len(flow) == outline.packets
        assert set(flow.tolist()) == set(range(len(outline.flows)))


def test_a_done_task_is_not_repeated_and_numbers_are_checked(folder: str) -> None:
    reduce_partition(folder, 3)
    before = os.stat(os.path.join(folder, "reduce", "3")).st_ino
    reduce_partition(folder, 3)
    assert os.stat(os.path.join(folder, "reduce", "3")).st_ino == before
    with pytest.raises(UsageError, match="partitions 0 to 4"):
        reduce_partition(folder, 5)


def test_before_the_end_of_stage_map_nothing_is_measured(tmp_path: Path) -> None:
    folder = planned(tmp_path, [str(data("c10"))], 1)
    with pytest.raises(UsageError, match="stage map is not complete"):
        reduce_partition(folder, 0)


def test_damaged_rows_are_named(folder: str) -> None:
    part = next((Path(folder) / "map").glob("*/0.parquet"))
    part.write_bytes(part.read_bytes()[:-50])
    with pytest.raises(UnreadableInput, match=f"{part.name} is damaged.*remove its folder"):
        reduce_partition(folder, 0)
    assert os.listdir(os.path.join(folder, "reduce")) == []


def test_missing_rows_are_no_empty_partition(tmp_path: Path) -> None:
    folder = mapped(tmp_path, [str(data("c10"))], 1)
    part = tmp_path / "map" / "0" / "0.parquet"
    rows = list(read_columns(str(part)))
    part.unlink()
    with pytest.raises(
        UnreadableInput, match=r"0\.parquet is damaged \(no such file\): remove its folder"
    ):
        reduce_partition(folder, 0)
    fewer = ColumnWriter(str(part), {name: array.dtype for name, array in rows[0].items()})
    fewer.write({name: array[:-1] for name, array in rows[0].items()})
    fewer.close()
    with pytest.raises(UnreadableInput, match=r"0\.parquet is damaged \(unexpected number of rows"):
        reduce_partition(folder, 0)


def test_too_many_flows_end_the_task(tmp_path: Path) -> None:
    from dataclasses import replace

    options = replace(plan_module.AnalyzeOptions(), max_flows=3)
    folder = planned(tmp_path, [str(data("c10"))], 1, options)
    from rocescope.cluster.split import map_capture

    map_capture(folder, 0)
    with pytest.raises(RocescopeError, match="more than 3 flows"):
        reduce_partition(folder, 0)


# The state of the measures in a file.


def stored(value: object) -> bytes:
    file = io.BytesIO()
    write_state(file, value)
    return file.getvalue()


@pytest.fixture(scope="module")
def run() -> Iterator[Pipeline]:
    """A capture with CM messages."""
    with open_captures([str(data("c10"))], AnalyzeOptions()) as run:
        assert run.read()
        yield run


@pytest.fixture(scope="module")
def whole(run: Pipeline) -> bytes:
    """Its measures in a file."""
    return stored(run.measuring)


def test_the_measures_come_back_and_give_the_same_result(run: Pipeline, whole: bytes) -> None:
    expected = msgspec.json.encode(run.conclude(True))
    before = run.measuring
    measuring = read_state(io.BytesIO(whole), "x")
    assert isinstance(measuring, Measuring)
    run.measuring = measuring
    try:
        assert msgspec.json.encode(run.conclude(True)) == expected
    finally:
        run.measuring = before


def test_layouts_of_arrays_stay_so_that_kernels_take_them(run: Pipeline, whole: bytes) -> None:
    measuring = read_state(io.BytesIO(whole), "x")
    for name, array in measuring.tracker.state._asdict().items():
        same = getattr(run.measuring.tracker.state, name)
        assert array.dtype == same.dtype, name
        assert array.dtype.isalignedstruct == same.dtype.isalignedstruct, name
        assert array.flags.writeable, name


def test_plain_values_and_shared_arrays() -> None:
    array = np.arange(3)
    value = {"a": (1, -(1 << 70), 2.5, None, True), (1, 2): {3}, "b": [array, array]}
    file = io.BytesIO()
    write_state(file, value)
    back = read_state(io.BytesIO(file.getvalue()), "x")
    assert back["a"] == value["a"]
    assert back[1, 2] == {3}
    assert back["b"][0] is back["b"][1]
    assert np.array_equal(back["b"][0], array)


def test_other_classes_have_no_place() -> None:
    with pytest.raises(TypeError, match="no place for"):
        write_state(io.BytesIO(), [io.StringIO()])


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.9, 0.999])
def test_a_cut_file_is_damaged(whole: bytes, kept: float) -> None:
    with pytest.raises(UnreadableInput, match="state is damaged"):
        read_state(io.BytesIO(whole[: int(len(whole) * kept)]), "state")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.95])
def test_a_changed_byte_is_damage(whole: bytes, place: float) -> None:
    changed = bytearray(whole)
    changed[int(len(changed) * place)] ^= 0x10
    with pytest.raises(UnreadableInput, match="state is damaged"):
        read_state(io.BytesIO(bytes(changed)), "state")
