"""aggregate as a program: results, exit codes, one line for a mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest

from rocescope import cli
from rocescope.report.files.results import json_schema

FABRIC = ["--fabric", "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G"]
JOBS = ["--jobs", "count=2,workers=3,fragments=100,window=32,iterations=2"]
WORDS = ["aggregate", *FABRIC, *JOBS, "--memory", "48", "-s", "atp", "-s", "esa"]


def test_json_keeps_to_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*WORDS, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json_schema("aggregate"))
    assert [one["name"] for one in found["schemes"]] == ["atp", "esa"]
    assert any(text.startswith("esa: the values of priorities") for text in found["assumed"])


def test_rows_per_scheme_and_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*WORDS, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["scheme"], row["name"]) for row in rows] == [
        ("atp", "job1 comm"), ("atp", "job2 comm"), ("esa", "job1 comm"), ("esa", "job2 comm"),
    ]  # fmt: skip
    assert all(float(row["completion_ns"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "0"], "--runs must be 1 to"),
        (["--loss", "0.9"], "--loss must be 0 to 0.5"),
        (["--loss", "nan"], "--loss must be 0 to 0.5"),
        (["--duplicate", "0.3", "--reorder", "0.3"], "must be at most 0.5"),
        (["--jitter", "-1"], "--jitter must be 0 to 10"),
        (["--seed", "-1"], "--seed must be 0 to"),
        (["--memory", "0"], "--memory must be 1 to"),
        (["-s", "magic"], "there is no scheme 'magic'"),
        (["--jobs", "workers=70"], "workers '70' is not a whole number from 1 to 62"),
        (["--jobs", "count=3,workers=8"], "do not fit the free hosts"),
        (["--until", "soon"], "--until"),
        (["--top", "0"], "--top must be 1 or more"),
        (["--jobs", ""], "--jobs is empty"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.run([*WORDS, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_captured_ring_is_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = str(tmp_path / "ring.pcap")
    words = ["--hosts", "4", "--message-size", "99200", "--messages", "2"]
    assert cli.run(["generate", "ring-allreduce", "-o", ring, *words]) == 0
    words = ["aggregate", ring, *FABRIC, "-s", "atp", "--format", "json"]
    assert cli.run([*words, "--jobs", "workers=2,fragments=50,window=32"]) == 0
    first, other = json.loads(capsys.readouterr().out)["jobs"]
    assert first["name"] == "job1 captured ring" and len(first["workers"]) == 4
    # 400 packets of 248 bytes, twice and without a silence between them.
    assert abs(first["fragments"] * first["iterations"] - 800) <= 2 and first["captured_ns"] > 0
    assert other["name"] == "job2 comm" and other["captured_ns"] is None
    assert not {*first["workers"], first["server"]} & {*other["workers"], other["server"]}

    assert cli.run([*words[:-2], "--window", "0"]) == 2
    assert "--window must be 1 to" in capsys.readouterr().err
    assert cli.run(["aggregate", *FABRIC]) == 2
    assert "give captures, or jobs with --jobs" in capsys.readouterr().err
    assert cli.run([*WORDS, "--map", "order"]) == 2
    assert "need captures" in capsys.readouterr().err
