"""Folders of results in the terminal UI."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from captures import data
from tui_driver import drive, text_of

from rocescope import cli
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.report.out_folder import out_folder
from rocescope.tui.app import RocescopeApp
from rocescope.tui.session.results import ResultsSession
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import UNKNOWN, Snapshot
from rocescope.tui.session.words import queue_pairs

PATHS = [str(data(f"i01_write_loss0.5_AtoB.{at}")) for at in ("atA", "atB")]
ELSEWHERE = {"rate", "src", "dst"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "out"
    with out_folder(path) as out:
        out.write(analyze(PATHS, AnalyzeOptions()))
    return path


def read(session: Session) -> Snapshot:
    session.start()
    assert session.wait()
    return session.snapshot()


def test_the_columns_are_those_of_the_captures(folder: Path) -> None:
    captures = Session.open(PATHS)
    expected = read(captures)
    captures.diagnose()
    expected = captures.snapshot()
    results = ResultsSession(folder)
    found = read(results)
    assert found.source.error == "" and not found.source.running
    assert (found.source.packets, found.source.frames) == (
        expected.source.packets,
        expected.source.frames,
    )
    assert [found.key(f) for f in range(len(found.flows))] == [
        expected.key(f) for f in range(len(expected.flows))
    ]
    for field in fields(found.flows):
        one, other = (getattr(s.flows, field.name) for s in (found, expected))
        if field.name not in ELSEWHERE:
            known = (one != UNKNOWN) & (other != UNKNOWN)
            assert known.any() or (one == other).all(), field.name
            assert np.array_equal(one[known], other[known]), field.name
    assert np.allclose(found.flows.rate, expected.flows.rate)
    assert found.paths["entropy"].seen().tolist() == expected.paths["entropy"].seen().tolist()
    assert found.judged.states == expected.judged.states != {}
    assert found.judged.lost == expected.judged.lost != {}
    assert found.judged.late == expected.judged.late
    assert (found.judged.hops, found.judged.findings) == (
        expected.judged.hops,
        expected.judged.findings,
    )
    said = [queue_pairs(s, s.paths["entropy"]) for s in (found, expected)]
    assert said[0] == said[1]
    key = found.key(0)
    assert results.focus(key) == captures.analysis().flows[0]
    captures.close()


def test_what_needs_packets_is_refused(folder: Path) -> None:
    results = ResultsSession(folder)
    read(results)
    assert results.absent("packets") and not results.absent("hops")
    assert not results.set_filter("packets > 10")
    with pytest.raises(UsageError, match="no packets"):
        results.set_filter("psn == 1")
    assert results.command_line(None) == f"rocescope tui {folder}"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("summary.json", b"", "is not the summary of an analysis"),
        ("summary.json", b'{"schema_version": "1.6"}', "is not the summary of an analysis"),
        ("summary.json", b'{"x":' + b"[" * 100_000, "is not the summary of an analysis"),
        ("flows/0.parquet", b"PAR1 cut", "cannot be read"),
        ("flows/0.parquet", None, "cannot be read"),
        ("flows/ended.parquet", b"no parquet", "cannot be read"),
    ],
)
def test_damaged_folders(
    folder: Path, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    copy = tmp_path / "out"
    shutil.copytree(folder, copy)
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    found = read(ResultsSession(copy))
    assert said in found.source.error and "\n" not in found.source.error


def test_a_pipe_in_a_folder_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "out"
    shutil.copytree(folder, copy)
    (copy / "flows/0.parquet").unlink()
    os.mkfifo(copy / "flows/0.parquet")
    assert "not a regular file" in read(ResultsSession(copy)).source.error


@pytest.mark.parametrize("flow", [-1, 8])
def test_findings_of_flows_that_are_not_there(folder: Path, tmp_path: Path, flow: int) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    summary = json.loads((folder / "summary.json").read_bytes())
    assert len(summary["flows"]) == 8
    summary["diagnosis"]["findings"][0]["flows"] = [flow]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert "flows that it does not list" in read(ResultsSession(tmp_path)).source.error


def test_results_of_another_analysis_or_version(folder: Path, tmp_path: Path) -> None:
    with out_folder(tmp_path) as out:
        out.write(analyze(PATHS[:1], AnalyzeOptions(filter="opcode == 17")))
    (tmp_path / "summary.json").write_bytes((folder / "summary.json").read_bytes())
    assert "does not belong" in read(ResultsSession(tmp_path)).source.error
    summary = json.loads((folder / "summary.json").read_bytes())
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"schema_version": "2.0"}))
    assert "has schema version 2.0" in read(ResultsSession(tmp_path)).source.error


@pytest.mark.thorough
def test_the_screens(folder: Path) -> None:
    """Screens without packets say so, and no key breaks them."""
    keys = [*"37nl4p", "enter", *"5o6890rs", "D", "1", "enter", "escape", "e", "escape"]
    shown: list[str] = []

    def note(app: RocescopeApp) -> None:
        shown.append(" ".join(" ".join(text_of(app)).split()))

    drive([], ["3", note, "7", note, *keys, "2"], (80, 24), note, session=ResultsSession(folder))
    hops, packets, flows = shown
    assert "lost (" in hops
    assert "Results have no packets" in packets and "reading" not in packets
    assert "10.0.0.1 10.0.0.2" in flows


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["tui", str(folder), PATHS[0]]) == 2
    assert "give it alone" in capsys.readouterr().err
    assert cli.run(["tui", str(folder), "--filter", "ip.src == 10.0.0.1"]) == 2
    assert "--filter needs captures" in capsys.readouterr().err
