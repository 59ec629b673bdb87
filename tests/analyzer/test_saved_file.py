"""Files that others may have put into a folder."""

from __future__ import annotations

import os

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.saved_file import read_saved


def test_a_regular_file_up_to_the_limit(tmp_path):
    file = tmp_path / "answer"
    file.write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("answer")
    assert read_saved(file, 100) == b"x" * 100
    assert read_saved(tmp_path / "link", 100) == b"x" * 100
    with pytest.raises(UsageError, match=r"cannot read .*/answer: larger than 0 mib"):
        read_saved(file, 99)


def test_pipes_devices_and_sparse_files_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("pipe", "not a regular file"),
        ("device", "not a regular file"),
        ("sparse", "larger than 256 mib"),
        ("loop", "too many levels"),
        (".", "directory"),
        ("none", "no such file"),
    ):
        with pytest.raises(UsageError, match=reason):
            read_saved(tmp_path / name)


def test_a_file_that_tells_no_size():
    """Files of /proc have size 0 and content."""
    assert read_saved("/proc/self/stat").startswith(str(os.getpid()).encode())
