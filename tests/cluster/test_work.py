"""The limit of open files: raised for a plan, or told."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from captures import data
from clusters import planned

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster import work as module
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture
from rocescope.cluster.work import (
    ColumnWriter,
    Work,
    make_plan,
    read_columns,
    read_record,
    write_record,
)

# The limit of open files: raised for a plan, or told.

PATHS = [str(data("c10")), str(data("c40"))]


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    """The limit of this process, set back at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_every_task_raises_the_limit_as_far_as_it_needs(
    tmp_path: Path, limit: tuple[int, int]
) -> None:
    folder = planned(tmp_path, PATHS, 100)
    for task in (
        lambda: map_capture(folder, 0),
        lambda: map_capture(folder, 1),
        lambda: reduce_partition(folder, 0),
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, limit[1]))
        task()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 400


@pytest.mark.parametrize(
    ("soft", "raised_to"), [(399, 400), (400, None), (500, None), (resource.RLIM_INFINITY, None)]
)
@pytest.mark.parametrize("hard", [500, resource.RLIM_INFINITY])
def test_a_limit_that_is_enough_stays(
    monkeypatch: pytest.MonkeyPatch, soft: int, raised_to: int | None, hard: int
) -> None:
    """100 partitions of two captures need 400 files; the limit of the system never changes."""
    changes = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: changes.append((kind, limits)))
    make_plan(PATHS, AnalyzeOptions(), 100)
    assert changes == ([(resource.RLIMIT_NOFILE, (raised_to, hard))] if raised_to else [])


def test_more_than_the_system_allows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (200, 200))
    with pytest.raises(UsageError, match=r"700 partitions of 2 captures .* limit here is 200"):
        make_plan(PATHS, AnalyzeOptions(), 700)
    make_plan(PATHS, AnalyzeOptions(), 2)


# Columns in Parquet files.

DTYPES = {"a": np.dtype(np.uint32), "b": np.dtype(np.int64)}


def written(path: Path, pieces: list[int]) -> None:
    writer, start = ColumnWriter(str(path), DTYPES), 0
    for size in pieces:
        values = np.arange(start, start + size)
        writer.write({"a": values.astype(np.uint32), "b": -values})
        start += size
    writer.close()


def test_pieces_of_any_size_come_back_in_order(tmp_path: Path) -> None:
    written(tmp_path / "x", [3, 0, 200_000, 1])
    pieces = list(read_columns(str(tmp_path / "x"), 70_000))
    a, b = (np.concatenate([piece[name] for piece in pieces]) for name in "ab")
    assert len(pieces) > 1
    assert (a.dtype, b.dtype) == (np.uint32, np.int64)
    assert np.array_equal(a, np.arange(200_004))
    assert np.array_equal(b, -np.arange(200_004))


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    said = r"cannot write .*/map/0: no space left on device$"
    with pytest.raises(RocescopeError, match=said), Work(str(tmp_path)).task("map", "0"):
        written(Path("/dev/full"), [50_000])
    gc.collect()
    assert not lost


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x"
    written(path, [50_000])
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-100], "flipped": data, "empty": b""}[damage])
    with pytest.raises(UnreadableInput, match="is damaged"):
        list(read_columns(str(path)))


# The folder of the tasks: who may write to it, whole results, versions.


class Found(msgspec.Struct):
    value: int


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    work = Work(str(tmp_path / "w"))
    work.make()
    assert os.stat(work.folder).st_mode & 0o777 == 0o700
    os.chmod(work.folder, 0o770)
    with pytest.raises(UsageError, match=r"others can write to .*chmod go-w"):
        work.check()
    os.chmod(work.folder, 0o700)
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    with pytest.raises(UsageError, match="others can write to"):
        Work(str(tmp_path / "open" / "w")).make()


def test_folders_above_are_made_for_this_user_only(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        Work(str(tmp_path / "a" / "b" / "w")).make()
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cluster plan --work makes it"):
        Work(str(tmp_path / "none")).check()


def test_a_result_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    work = Work(str(tmp_path))
    with pytest.raises(ZeroDivisionError), work.task("map", "3") as folder:
        Path(folder, "half").write_text("x")
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "map") == []
    with work.task("map", "3") as folder:
        assert not work.done("", "map", 3)
        Path(folder, "whole").write_text("x")
    assert os.listdir(tmp_path / "map") == ["3"]


def test_of_two_processes_with_one_task_the_first_wins(tmp_path: Path) -> None:
    work = Work(str(tmp_path))
    with work.task("map", "0") as folder:
        Path(folder, "of").write_text("late")
        (tmp_path / "map" / "0").mkdir()
        (tmp_path / "map" / "0" / "of").write_text("first")
    assert (tmp_path / "map" / "0" / "of").read_text() == "first"
    assert os.listdir(tmp_path / "map") == ["0"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    work = Work(str(tmp_path))
    left = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "import os, signal\nfrom rocescope.cluster.work import Work\n"
            f"with Work({str(tmp_path)!r}).task('map', '1') as folder:\n"
            "    open(folder + '/half', 'w').close()\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n",
        ],
    )
    assert left.returncode == -9
    assert len(os.listdir(tmp_path / "map")) == 1
    assert not work.done("", "map", 1)
    with work.task("map", "1"):
        pass
    assert os.listdir(tmp_path / "map") == ["1"]


def test_what_a_machine_with_a_longer_name_does_stays(tmp_path: Path) -> None:
    other = tmp_path / "map" / f".1.{os.uname().nodename}.rack7.12"
    other.mkdir(parents=True)
    with Work(str(tmp_path)).task("map", "1"):
        pass
    assert sorted(os.listdir(tmp_path / "map")) == [other.name, "1"]


def test_records_come_back_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r"
    assert write_record(str(path), Found(7))
    assert read_record(str(path), Found).value == 7
    whole = path.read_bytes()
    for bad in (b"", whole[:10], whole[:-1], whole[:-1] + b"\x09", b"x" + whole):
        path.write_bytes(bad)
        with pytest.raises((UnreadableInput, UsageError)) as error:
            read_record(str(path), Found)
        assert str(path) in str(error.value)


def test_the_first_of_two_records_stays(tmp_path: Path) -> None:
    path = tmp_path / "r"
    assert write_record(str(path), Found(7))
    assert not write_record(str(path), Found(8))
    assert read_record(str(path), Found).value == 7
    assert os.listdir(tmp_path) == ["r"]


def test_results_of_another_plan_are_refused(tmp_path: Path) -> None:
    work = Work(str(tmp_path))
    with work.task("map", "0") as folder:
        write_record(os.path.join(folder, "capture"), Found(7), "a")
    assert work.done("a", "map", 0)
    with pytest.raises(UsageError, match="is of another plan"):
        work.done("b", "map", 0)
    with pytest.raises(UsageError, match="is of another plan"):
        read_record(work.path("map", "0", "capture"), Found, "b")
    os.unlink(work.path("map", "0", "capture"))
    with pytest.raises(UnreadableInput, match=r"capture is damaged \(no such file"):
        work.done("a", "map", 0)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "r")
    monkeypatch.setattr(module, "VERSION", "0.0.9")
    write_record(path, Found(7))
    monkeypatch.undo()
    with pytest.raises(UsageError, match=r"written by 'rocescope 0\.0\.9, format"):
        read_record(path, Found)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("a file")
    with pytest.raises(RocescopeError, match="cannot write"), Work(str(tmp_path)).task("map", "0"):
        pass
