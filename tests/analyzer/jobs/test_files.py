"""Log files: patterns, long and half lines, compression."""

import gzip
import os

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.jobs.lines import LONGEST_LINE_BYTES, lines, named


def test_patterns_name_files_once_in_order(tmp_path):
    for name in ("b.log", "a.log", "c[1].log", "d.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")  # named by a wildcard it would be waited for
    found = named([f"{tmp_path}/*.log", f"{tmp_path}/a.log"])
    assert found == tuple(f"{tmp_path}/{name}" for name in ("a.log", "b.log", "c[1].log"))
    assert named([f"{tmp_path}/pipe.log"]) == (f"{tmp_path}/pipe.log",)
    assert named([f"{tmp_path}/c[1].log"]) == (f"{tmp_path}/c[1].log",)
    with pytest.raises(UsageError, match="no file"):
        named([str(tmp_path / "folder.log")])
    with pytest.raises(UsageError, match=r"no file is named .*/none\*"):
        named([f"{tmp_path}/none*"])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_whole_lines_only(tmp_path, pack):
    path = tmp_path / "x.log"
    long = b"x" * (LONGEST_LINE_BYTES + 1)
    fits = b"y" * LONGEST_LINE_BYTES
    path.write_bytes(pack(b"one\n\n" + long + b"\n" + fits + b"\ntwo\nhalf"))
    assert list(lines(str(path))) == [b"one", b"", fits, b"two"]


def test_lines_across_pieces_are_whole(tmp_path):
    path = tmp_path / "x.log"
    rows = [b"%07d" % number * 9 for number in range(40_000)]
    path.write_bytes(b"\n".join(rows) + b"\n")
    assert list(lines(str(path))) == rows


def test_a_file_without_line_ends_takes_no_memory(tmp_path):
    path = tmp_path / "x.log"
    with path.open("wb") as file:
        file.truncate(40 << 20)
    assert list(lines(str(path))) == []


def test_rotated_parts_are_read_in_the_order_of_their_age(tmp_path):
    aged = ["job.log.10.gz", "job.log.2", "job.log.1", "job.log"]
    dated = ["ucx-20261122.xz", "ucx-20261123", "ucx"]
    for name in (*aged, *dated, "job.log.x"):
        (tmp_path / name).write_text("")
    found = [path.removeprefix(f"{tmp_path}/") for path in named([f"{tmp_path}/*"])]
    assert found == [*aged, "job.log.x", *dated]


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_devices_are_no_logs(device):
    with pytest.raises(UsageError, match=f"--nccl-log: {device} is a device"):
        named([device])
