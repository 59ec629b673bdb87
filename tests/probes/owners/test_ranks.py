"""Ranks from real processes, and from /proc trees that changed under the reader's hands."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.owners import ranks
from rocescope.probes.owners.ranks import Rank, rank_of, start_ticks


def sleeper(**environment):
    """A process that runs with this environment until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": "", **environment},
    )
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "12", "LOCAL_RANK": "4"}, Rank(12, 4, "RANK")),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            Rank(3, 1, "OMPI_COMM_WORLD_RANK"),
        ),
        ({"SLURM_PROCID": "7", "SLURM_LOCALID": "0"}, Rank(7, 0, "SLURM_PROCID")),
        ({"SLURM_PROCID": "7", "RANK": "56"}, Rank(56, None, "RANK")),
        ({"PMI_RANK": "2"}, Rank(2, None, "PMI_RANK")),
        ({"MV2_COMM_WORLD_RANK": "5"}, Rank(5, None, "MV2_COMM_WORLD_RANK")),
        ({"RANK": "", "PMI_RANK": "9"}, Rank(9, None, "PMI_RANK")),
        ({"RANK": "-1"}, Rank(reason="no launcher has set a rank")),
        ({"RANK": "1" * 5000}, Rank(reason="no launcher has set a rank")),
        ({"XRANK": "1"}, Rank(reason="no launcher has set a rank")),
    ],
)
def test_rank_of_a_process(environment, expected):
    process = sleeper(**environment)
    try:
        assert rank_of(process.pid) == expected
        assert rank_of(process.pid, time.time_ns()) == expected
    finally:
        process.communicate(b"")


def test_process_that_is_gone():
    process = sleeper(RANK="1")
    process.communicate(b"")
    assert rank_of(process.pid) == Rank(reason="the process has ended")
    assert start_ticks(process.pid) is None


def test_a_younger_process_with_the_number():
    before = time.time_ns() - 10_000_000_000
    process = sleeper(RANK="1")
    try:
        assert rank_of(process.pid, before).reason.endswith("another one has its number")
        assert rank_of(process.pid, before).rank is None
    finally:
        process.communicate(b"")


def test_the_number_changes_hands_while_reading(monkeypatch):
    starts = iter([100, 200])
    monkeypatch.setattr(ranks, "start_ticks", lambda *_: next(starts))
    assert rank_of(os.getpid()).reason == "the process has ended, another one has its number"


def test_another_users_process(need_tool, root):
    setpriv = need_tool("setpriv")
    process = sleeper(RANK="1")
    code = f"print(open('/proc/{process.pid}/environ').read())"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    try:
        refused = subprocess.run(
            [setpriv, "--reuid=65534", "--clear-groups", python, "-c", code],
            capture_output=True,
            text=True,
        )
        assert "PermissionError" in refused.stderr  # so it is what rank_of meets
    finally:
        process.communicate(b"")


def test_unreadable_environment(tmp_path, monkeypatch):
    def refuse(path, *_):
        if path.endswith("environ"):
            raise PermissionError(13, "Permission denied")
        return open(path, "rb")

    monkeypatch.setattr(ranks, "open", refuse, raising=False)
    assert "CAP_SYS_PTRACE" in rank_of(os.getpid()).reason


def test_odd_process_names(tmp_path):
    """The name of a process may hold blanks and brackets."""
    folder = tmp_path / "7"
    folder.mkdir()
    fields = " ".join(str(n) for n in range(4, 52))
    (folder / "stat").write_text(f"7 (a) R 1 (b) S {fields}\n")
    assert start_ticks(7, str(tmp_path)) == 22


@given(st.binary(max_size=200))
def test_any_environment(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("proc")
    (folder / "7").mkdir()
    (folder / "7" / "stat").write_text("7 (x) S " + " ".join(["1"] * 40))
    (folder / "7" / "environ").write_bytes(b"RANK=3\0" + content)
    found = rank_of(7, proc=str(folder))
    assert found.variable == "RANK" or b"RANK=" in content
