"""The command in a real terminal, driven by keys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from captures import data
from real_terminal import terminals
from waiting import until


@pytest.fixture
def terminal(need_tool, tmp_path):
    need_tool("tmux")
    with terminals(tmp_path) as terminal:
        yield terminal


def command(*paths):
    return [sys.executable, "-m", "rocescope", "tui", *map(str, paths)]


def test_a_real_capture_in_a_real_terminal(terminal, need_tool, tmp_path):
    window = terminal(command(data("i03_write_reorder5_AtoB")))
    window.wait("1 Diag")
    window.keys("2")
    window.wait("982 late, 4,860")
    window.keys("4")
    window.wait("only hint at paths")
    window.keys("5")
    window.wait("EXTENT")
    window.keys("7")
    window.wait("gap: 23 missing")
    window.resize(120, 40)
    window.wait("EXPECT")
    window.keys("2")
    window.keys("/")
    window.wait("or part of an address")
    window.keys("late > 6%", "Enter")
    window.wait("/ late > 6% (1)")
    window.keys("\\;")
    window.wait("comment on this flow")
    window.keys("slow one", "Enter")
    window.wait("; slow one")
    window.keys("e")
    window.wait("save as .pcapng")
    window.keys("C-u")
    until(lambda: "-view.pcapng" not in window.screen())
    out = tmp_path / "late.pcapng"
    window.keys(str(out))
    window.wait("late.pcapng")
    window.keys("Enter")
    until(out.exists)  # once it is whole; the message is seen for seconds only
    window.keys("q")
    assert "exit code 0" in window.wait("exit code")
    assert b"marked: slow one" in out.read_bytes()
    fields = ["-Y", "frame.comment", "-T", "fields", "-e", "frame.comment"]
    reads = [need_tool("tshark"), "-r", str(out), *fields]
    shown = subprocess.run(reads, capture_output=True, text=True, check=True).stdout
    assert "missing" in shown


def test_ctrl_c_and_missing_files_leave_a_clean_terminal(terminal, tmp_path):
    window = terminal(command(tmp_path / "nothing.pcap"))
    window.wait("X  retries")
    window.keys("C-c")
    shown = window.wait("exit code 4")
    assert "Traceback" not in shown and "rocescope:" in shown


def test_the_terminal_is_left_in_order_when_ended(terminal):
    window = terminal(command(data("c05_rc_atomic_fetchadd")))
    window.wait("2 QPs")
    window.keys("q")
    window.wait("exit code 0")
    assert "2 QPs" not in window.screen()  # the alternate screen is gone


def test_sigterm_ends_it_with_the_terminal_in_order(terminal, tmp_path):
    told = tmp_path / "pid"
    itself = ["sh", "-c", f'echo $$ > {told}; exec "$@"', "sh"]
    window = terminal([*itself, *command(data("c05_rc_atomic_fetchadd"))])
    window.wait("2 QPs")
    os.kill(int(told.read_text()), signal.SIGTERM)
    window.wait(f"exit code {128 + signal.SIGTERM}")
    assert "2 QPs" not in window.screen()


def test_kill_9_during_an_export_leaves_nothing(terminal, tmp_path):
    told, folder = tmp_path / "pid", tmp_path / "folder"
    folder.mkdir()
    code = (
        "import os, threading; from rocescope.cli import main; stands = threading.Event().wait;"
        f"open({str(told)!r}, 'w').write(str(os.getpid()));"
        "os.link = lambda *_, **__: stands(); main()"  # the whole file never gets its name
    )
    window = terminal([sys.executable, "-c", code, "tui", str(data("i03_write_reorder5_AtoB"))])
    window.wait("1 Diag")
    window.keys("2", "e")
    window.wait("save as")
    window.wait("-view.pcapng")
    window.keys("C-u")
    until(lambda: "-view.pcapng" not in window.screen())
    window.keys(str(folder / "x.pcapng"))
    window.wait("x.pcapng")
    window.keys("Enter")
    pid = int(told.read_text())
    opened = Path(f"/proc/{pid}/fd")
    until(lambda: any(str(folder) in _target(file) for file in opened.iterdir()))
    os.kill(pid, signal.SIGKILL)
    window.wait(f"exit code {128 + signal.SIGKILL}")
    assert list(folder.iterdir()) == []


def _target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""


def test_a_closed_terminal_ends_it_at_once(terminal, tmp_path):
    ended = tmp_path / "ended"
    watch = ["sh", "-c", f'trap : HUP; "$@"; echo $? > {ended}', "sh"]
    window = terminal([*watch, *command(data("c05_rc_atomic_fetchadd"))])
    window.wait("2 QPs")
    window.close()
    until(lambda: ended.exists() and ended.read_text())
    assert ended.read_text() == f"{128 + signal.SIGHUP}\n"
