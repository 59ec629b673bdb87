"""`analyze --cluster local:N`."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from captures import data
from clusters import SPRAYED

from rocescope import cli

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
