"""Processes exclude each other; nobody waits for the dead, for ever, or for what cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from rocescope.kernels import file_lock
from rocescope.kernels.file_lock import process_lock

HOLDER = """
import os, sys
from rocescope.kernels.file_lock import process_lock
with process_lock(sys.argv[1], 5):
    if os.fork():
        print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[IO[str]]:
    """A process that has the lock until this is closed; its child shares the open file."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.stdin


def test_a_lock_is_waited_for_until_its_holder_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "lock"
    with holder(path) as until_closed:
        with process_lock(str(path), 0.0) as held:
            assert not held
        monkeypatch.setattr(file_lock.time, "sleep", lambda _: until_closed.close())
        with process_lock(str(path), 300.0) as held:
            assert held and until_closed.closed


def test_a_killed_holder_has_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = HOLDER.replace("if os.fork():", "if True:")
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        with process_lock(str(path), 300.0) as held:
            assert held


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside = most = 0

    def enter(_: int) -> None:
        nonlocal inside, most
        with process_lock(str(tmp_path / "lock"), 300.0) as held:
            assert held
            inside += 1
            most = max(most, inside)
            time.sleep(0.001)
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(12)))
    assert most == 1


def test_where_nothing_can_be_written_there_is_no_lock_and_no_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    for path in ("/proc/none/lock", tmp_path / "file" / "lock", tmp_path / "link"):
        with process_lock(str(path), 300.0) as held:
            assert not held
    assert not os.path.exists(tmp_path / "elsewhere")
