"""Stage map."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from captures import DATA, data
from clusters import planned

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.cluster.plan import read_plan
from rocescope.cluster.split import Capture, map_capture
from rocescope.cluster.work import Work, read_record


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
