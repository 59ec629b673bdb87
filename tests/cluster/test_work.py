"""The folder of the tasks: who may write to it, whole results, versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.cluster import work as module
from rocescope.cluster.work import Work, read_record, write_record


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
