"""Values in files of the cache: whole, or not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocescope.kernels.stored import store, stored

VALUE = {"probe": b"\0\1", "more": [1, 2.5, "text", None, (True,)]}


def test_a_value_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "a.code")
    for value in (VALUE, "another"):
        store(value, path)
        assert stored(path) == value
    assert os.listdir(tmp_path) == ["a.code"]


def test_what_is_cut_or_changed_anywhere_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    store(VALUE, str(path))
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at])
        assert stored(str(path)) is None
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        assert stored(str(path)) is None


def test_without_a_folder_nothing_is_written_or_read(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "a.code")
    store(VALUE, path)
    assert stored(path) is None
    assert not os.listdir(tmp_path)


FULL = """
import os, sys
from rocescope.kernels.stored import store, stored
folder = sys.argv[1] + "/kernel"
os.mkdir(folder)
for name in ("a", "b"):
    store("x" * 100_000, f"{folder}/{name}")
    assert stored(f"{folder}/{name}") is None
assert os.listdir(folder) == []
"""


@pytest.mark.usefixtures("root")
def test_a_full_disk_is_said_once_and_leaves_nothing(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    mount = f"mount -t tmpfs -o size=16k,mode=0700 none {tmp_path}"
    line = [need_tool("unshare"), "-m", "sh", "-c", f'{mount}; "$@"', "sh", sys.executable]
    done = subprocess.run([*line, "-c", FULL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"rocescope: compiled kernels are not cached in {tmp_path}: no space left\n"
    )
