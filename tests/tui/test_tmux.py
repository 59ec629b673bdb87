"""The command in a real terminal, driven by keys."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time

import pytest
from captures import data


@pytest.fixture
def terminal(need_tool, tmp_path):
    """`terminal(command, width, height)`: keys in, the screen out; gone afterwards."""
    need_tool("tmux")
    server = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / "tmux")]

    def tmux(*arguments):
        run = subprocess.run([*server, *arguments], capture_output=True, text=True, check=True)
        return run.stdout

    class Terminal:
        def __init__(self, command, width=80, height=24):
            line = f"{shlex.join(command)}; echo exit code $?; exec cat"
            environment = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            environment["XDG_CONFIG_HOME"] = str(tmp_path)
            pairs = [f"{k}={v}" for k, v in environment.items()]
            size = ["-x", str(width), "-y", str(height)]
            unset = ["-u", "COLUMNS", "-u", "LINES"]  # they would fix the size
            tmux("new-session", "-d", *size, "env", *unset, *pairs, "sh", "-c", line)

        def keys(self, *keys):
            tmux("send-keys", *keys)

        def resize(self, width, height):
            tmux("resize-window", "-x", str(width), "-y", str(height))

        def screen(self):
            return tmux("capture-pane", "-p")

        def wait(self, text, seconds=60):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if text in self.screen():
                    return self.screen()
                time.sleep(0.1)
            raise AssertionError(f"{text!r} did not come:\n{self.screen()}")

    yield Terminal
    subprocess.run([*server, "kill-server"], check=False)


def command(*paths):
    return [sys.executable, "-m", "rocescope", "tui", *map(str, paths)]


def test_a_real_capture_in_a_real_terminal(terminal):
    window = terminal(command(data("i03_write_reorder5_AtoB")))
    window.wait("982 late, 4,860 sent")
    window.keys("2")
    window.wait("only hint at paths")
    window.keys("3")
    window.wait("extent of late packets")
    window.keys("5")
    window.wait("gap: 38 missing")
    window.resize(120, 40)
    window.wait("EXPECT")
    window.keys("1")
    window.keys("/")
    window.wait("or part of an address")
    window.keys("late > 6%", "Enter")
    window.wait("/ late > 6% (1)")
    window.keys("q")
    assert "exit code 0" in window.wait("exit code")


def test_ctrl_c_and_missing_files_leave_a_clean_terminal(terminal, tmp_path):
    window = terminal(command(tmp_path / "nothing.pcap"))
    window.wait("nothing.pcap")
    window.keys("C-c")
    shown = window.wait("exit code 4")
    assert "Traceback" not in shown and "rocescope:" in shown


def test_the_terminal_is_left_in_order_when_ended(terminal):
    window = terminal(command(data("c05_rc_atomic_fetchadd")))
    window.wait("1 QPs")
    window.keys("q")
    window.wait("exit code 0")
    assert "1 QPs" not in window.screen()  # the alternate screen is gone
