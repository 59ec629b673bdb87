"""Options of captures."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from captures import data
from clusters import SPRAYED
from processes import children_of
from waiting import until

from rocescope import cli
from rocescope.analyzer.errors import UsageError
from rocescope.commands.options.capturing import (
    Capturing,
    Ending,
    Until,
    ended_by_signals,
    said_if_slow,
)
from rocescope.commands.options.reading import Selection
from rocescope.probes.hooks.attach import GONE
from rocescope.probes.hooks.others import OthersBefore

# Options of captures.

# Options of captures.


def test_options_of_the_probes():
    made = Capturing("pid:7", "xdp", 128, "64M").options(Selection([5000], "cnp"), sample=4)
    assert (made.namespace, made.hook, made.snap_bytes, made.sample) == ("pid:7", "xdp", 128, 4)
    assert made.ring_bytes == 64 << 20
    assert (made.udp_ports, made.filter) == ((4791, 5000), "cnp")
    assert Capturing().options(Selection()).ring_bytes is None
    with pytest.raises(UsageError, match="--ring"):
        Capturing(ring="large").options(Selection())


def test_the_end_of_a_capture():
    assert (Until().seconds, Until("1500ms", 1).seconds) == (None, 1.5)
    with pytest.raises(UsageError, match="--count must be 1 or more"):
        Until(count=0).seconds  # noqa: B018 - a property that checks
    with pytest.raises(UsageError, match="--duration"):
        Until("soon").seconds  # noqa: B018


# What the commands that capture share.


class Source:
    def __init__(self, *labels):
        self.interfaces = [Interface(label) for label in labels]
        self.missing = []
        self.others = OthersBefore(())
        self.stops = 0

    def stop(self):
        self.stops += 1

    def gone(self):
        return self.missing


class Interface:
    def __init__(self, label):
        self.label = label


def test_slow_work_says_so_once(capsys):
    with said_if_slow("patience", 0.01):
        time.sleep(0.05)
    assert capsys.readouterr().err == "rocescope: patience\n"


def test_quick_work_says_nothing_and_puts_the_handler_back(capsys):
    before = signal.getsignal(signal.SIGALRM)
    with said_if_slow("patience", 3600):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGALRM) is before


def test_other_threads_work_too():
    done = []

    def work():
        with said_if_slow("patience"), ended_by_signals(Source()):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_the_first_signal_stops_and_the_second_ends():
    source = Source()
    with ended_by_signals(source):
        os.kill(os.getpid(), signal.SIGINT)
        assert source.stops == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_source_is_told_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr("rocescope.commands.options.capturing.time.monotonic", lambda: 100.0)
    source = Source("a")
    Ending(source, 20)
    assert source.ends == 120  # type: ignore[attr-defined]


def test_it_ends_when_every_interface_has_gone(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rocescope.commands.options.capturing.time.monotonic", lambda: now[0])
    source = Source("a", "b")
    ending = Ending(source, None)
    for seconds, missing, stops in ((1.1, 1, 0), (2.2, 1, 0), (3.3, 2, 1)):
        now[0] = seconds
        source.missing = source.interfaces[:missing]
        ending.check()
        assert source.stops == stops
    said = capsys.readouterr().err.splitlines()
    assert said == [f"rocescope: interface {name} {GONE}" for name in "ab"]


# `analyze --cluster local:N`.

LOCAL = ["--cluster", "local:1", "--progress", "none"]


@pytest.mark.thorough
def test_the_result_is_that_of_one_process(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = ["analyze", *SPRAYED[:2], "-f", "json", "--sort", "wire_bytes"]
    assert cli.run(words) == 0
    expected = capfdbinary.readouterr().out
    assert cli.run([*words, *LOCAL, "--partitions", "2"]) == 0
    assert capfdbinary.readouterr().out == expected
    assert os.listdir(tmp_path) == []  # the temporary folder is gone


@contextmanager
def with_stopped_workers(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A run with `folder` as place of its temporary folder, and its stopped children."""
    words = ["analyze", *SPRAYED[:2], "--cluster", "local:2", "--progress", "none"]
    run = subprocess.Popen(
        [sys.executable, "-m", "rocescope", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    children: list[int] = []
    try:
        until(lambda: len(children_of(run.pid, "spawn_main")) == 2)
        children = children_of(run.pid)  # with the tracker of their resources
        for child in children:
            os.kill(child, signal.SIGSTOP)
        assert len(list(folder.iterdir())) == 1
        yield run, children
    finally:
        run.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
        run.wait()


def alive(pids: list[int]) -> list[int]:
    """Those that are neither gone nor waiting to be reaped."""
    found = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [pid] if state not in "ZX" else []
    return found


def test_sigterm_ends_the_workers_and_removes_the_folder(tmp_path: Path) -> None:
    with with_stopped_workers(tmp_path) as (run, children):
        run.send_signal(signal.SIGTERM)
        run.wait(60)
        for child in children:  # the tracker of resources ends by itself once it runs
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
        assert run.returncode == 143
        assert os.listdir(tmp_path) == []
        until(lambda: not alive(children), 60)


def test_workers_end_with_a_killed_parent_and_the_next_run_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_stopped_workers(tmp_path) as (run, children):
        run.kill()
        run.wait()
    until(lambda: not alive(children), 60)
    assert len(os.listdir(tmp_path)) == 1
    (tmp_path / "rocescope-other").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert cli.run(["analyze", str(data("c10")), *LOCAL]) == 0
    assert os.listdir(tmp_path) == ["rocescope-other"]


def test_the_folder_of_another_run_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with with_stopped_workers(tmp_path):
        used = os.listdir(tmp_path)
        assert cli.run(["analyze", str(data("c10")), *LOCAL]) == 0
        assert os.listdir(tmp_path) == used


@pytest.mark.thorough
def test_the_state_stays_in_the_work_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["analyze", str(data("c10")), *LOCAL, "--work", str(tmp_path / "w"), "-o", str(out)]
    assert cli.run(words) == 0
    first = (out / "summary.json").read_bytes()
    before = os.stat(tmp_path / "w" / "reduce" / "0").st_ino
    assert cli.run(words) == 0
    assert os.stat(tmp_path / "w" / "reduce" / "0").st_ino == before
    assert (out / "summary.json").read_bytes() == first
    assert len(json.loads(first)["flows"]) == 4


def with_a_pause(path: Path) -> str:
    """A capture of packets without a VLAN tag, after a pause of priority 3."""
    whole = data("c10").read_bytes()
    frame = bytes.fromhex("0180c2000001 020000000001 8808 0101 0008") + bytes(6) + b"\xff\xff"
    record = whole[24:32] + struct.pack("<II", 60, 60) + frame.ljust(60, b"\0")
    path.write_bytes(whole[:24] + record + whole[24:])
    return str(path)


@pytest.mark.thorough
def test_the_priorities_of_dscps_reach_the_diagnosis(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["analyze", with_a_pause(tmp_path / "paused.pcap"), "--link-rate", "1G", "-f", "json"]
    assert cli.run(words) == 0
    unknown = b"the priority of DSCP 0 in the switches is unknown"
    assert unknown in capfdbinary.readouterr().out
    priorities = ["--dscp-priority", "0=3"]
    assert cli.run([*words, *priorities]) == 0
    expected = capfdbinary.readouterr().out
    assert unknown not in expected
    work = ["--work", str(tmp_path / "w")]
    assert cli.run([*words, *LOCAL, *work, *priorities]) == 0
    assert capfdbinary.readouterr().out == expected
    assert cli.run(["cluster", "merge", *work, *priorities, "-f", "json"]) == 0
    assert capfdbinary.readouterr().out == expected
    assert cli.run(["cluster", "merge", *work, "--dscp-priority", ""]) == 2
    assert b"give DSCP=PRIORITY" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--work", "w"], "need --cluster"),
        (["--partitions", "3"], "need --cluster"),
        ([*LOCAL, "--conformance"], "--conformance cannot be combined with tasks"),
        (["--cluster", "ssh://h:1"], "give local:N"),
        (["--cluster", "tcp://h:1"], "can run code on the workers: give tls://"),
        ([*LOCAL, "--partitions", "0"], "give 1 to 4096"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["analyze", str(data("c10")), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_capture_has_the_exit_code_of_analyze(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = str(tmp_path / "gone.pcap")
    assert cli.run(["analyze", str(data("c10")), gone]) == 4
    expected = capsys.readouterr().err
    assert cli.run(["analyze", str(data("c10")), gone, *LOCAL]) == 4
    assert capsys.readouterr().err == expected
