"""Logs of a running job: they appear, grow, rotate and vanish."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_logs import nccl

from rocescope.analyzer.logs import following
from rocescope.analyzer.logs.files import LONGEST_LINE_BYTES
from rocescope.analyzer.logs.following import FollowedLogs

LOG = "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", [17, 18, 19]))


def known(logs):
    return sorted(pair.qpn for pair in logs.job.pairs())


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_a_log_in_parts_tells_what_the_whole_one_tells(cuts):
    path = f"/dev/shm/rocescope-test-{os.getpid()}.log"
    try:
        open(path, "w").close()
        logs = FollowedLogs([path])
        edges = [0, *sorted(cuts), len(LOG)]
        for begin, end in pairwise(edges):
            with open(path, "a") as file:
                file.write(LOG[begin:end])
            logs.update()
        whole = FollowedLogs([path])
        assert known(logs) == [17, 18, 19]
        assert logs.job.pairs() == whole.job.pairs()
        assert logs.job.files <= 1 and logs.update() is False
    finally:
        os.unlink(path)


def test_logs_appear_rotate_and_vanish(tmp_path):
    pattern = str(tmp_path / "*.log")
    logs = FollowedLogs([pattern])
    assert known(logs) == [] and "No such file" in logs.notes()[0]
    path = tmp_path / "a.log"
    path.write_text(LOG)
    assert logs.update() and known(logs) == [17, 18, 19] and logs.notes() == []
    path.rename(tmp_path / "old")
    other = "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", [44]))
    path.write_text(other)
    assert logs.update() and known(logs) == [17, 18, 19, 44]
    path.unlink()
    logs.update()
    assert known(logs) == [17, 18, 19, 44] and len(logs.notes()) == 1


def of(*qpns):
    return "".join(f"{line}\n" for line in nccl("nodea", 100, 11, 3, "10.0.0.1", qpns))


def test_a_renamed_log_is_read_once_and_to_its_end(tmp_path):
    path, moved = tmp_path / "a.log", tmp_path / "a.log.1"
    path.write_text(of(17))
    narrow, wide = FollowedLogs([str(path)]), FollowedLogs([f"{path}*"])
    before = wide.job.files
    with path.open("a") as writer:  # continues writing after the file is renamed
        writer.write(of(18))
        writer.flush()
        path.rename(moved)
        path.write_text(of(44))
        for logs in (narrow, wide):
            assert logs.update() and known(logs) == [17, 18, 44]
        writer.write(of(19))
    for logs in (narrow, wide):
        logs.update()
        assert known(logs) == [17, 18, 19, 44] and not logs.update()
    assert wide.job.files == before + 1


def test_a_log_that_is_emptied_and_grows_beyond_its_old_end_is_read_anew(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(of(17))
    logs = FollowedLogs([str(path)])
    path.write_text(of(44, 45))
    assert logs.update() and known(logs) == [17, 44, 45]


def test_files_of_the_past_are_closed(tmp_path):
    path = tmp_path / "a.log"
    open_files = len(os.listdir("/proc/self/fd"))
    logs = FollowedLogs([str(path)])
    for number in range(6):
        path.write_text(of(number + 1))
        logs.update()
        path.rename(tmp_path / f"old{number}")
    for _ in range(6):
        logs.update()
    assert len(os.listdir("/proc/self/fd")) <= open_files and len(known(logs)) == 6


def test_compressed_logs_and_folders(tmp_path):
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "a.log").write_bytes(gzip.compress(LOG.encode()))
    logs = FollowedLogs([str(tmp_path / "*.log")])
    assert known(logs) == [17, 18, 19] and logs.notes() == []


@pytest.mark.parametrize("long", [LONGEST_LINE_BYTES + 1, 5 * LONGEST_LINE_BYTES])
def test_lines_that_are_too_long_are_left_out(tmp_path, monkeypatch, long):
    monkeypatch.setattr(following, "_PIECE_BYTES", 2 * LONGEST_LINE_BYTES)
    path = tmp_path / "a.log"
    path.write_text("x" * long + LOG.splitlines()[5] + "\n" + LOG)
    assert known(FollowedLogs([str(path)])) == [17, 18, 19]
