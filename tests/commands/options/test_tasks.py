"""`analyze --cluster local:N`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from captures import data
from clusters import SPRAYED

from rocescope import cli

LOCAL = ["--cluster", "local:1", "--progress", "none"]


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--work", "w"], "need --cluster"),
        (["--partitions", "3"], "need --cluster"),
        ([*LOCAL, "--conformance"], "--conformance cannot be combined with tasks"),
        (["--cluster", "tls://h:1"], "give local:N"),
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
