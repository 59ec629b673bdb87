"""aggregate as a program: results, exit codes, one line for a mistake."""

from __future__ import annotations

import csv
import io
import json

import jsonschema
import pytest

from rocescope import cli
from rocescope.report.files.schemas import json_schema

FABRIC = ["--fabric", "leaf-spine:leaves=1,spines=1,hosts=16,rate=100G"]
JOBS = ["--jobs", "count=2,workers=3,fragments=100,window=32,iterations=2"]
WORDS = ["aggregate", *FABRIC, *JOBS, "--memory", "48", "-s", "atp", "-s", "esa"]


def test_json_keeps_to_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*WORDS, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json_schema("aggregate"))
    assert [one["name"] for one in found["schemes"]] == ["atp", "esa"]
    assert any(text.startswith("esa: how priorities") for text in found["assumed"])


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
        (["--runs", "0"], "--runs is 1 to"),
        (["--loss", "0.9"], "--loss is a share"),
        (["--loss", "nan"], "--loss is a share"),
        (["--duplicate", "0.3", "--reorder", "0.3"], "together at most 0.5"),
        (["--jitter", "-1"], "--jitter is a share"),
        (["--seed", "-1"], "--seed is 0 to"),
        (["--memory", "0"], "--memory is 1 to"),
        (["-s", "magic"], "there is no scheme 'magic'"),
        (["--jobs", "workers=70"], "workers is 1 to 62"),
        (["--jobs", "count=3,workers=8"], "do not fit the free hosts"),
        (["--until", "soon"], "--until"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert cli.run([*WORDS, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
