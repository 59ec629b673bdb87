"""Exit codes of analyses that are not complete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories_results import analysis, capture

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.summary.trust import ENDED_EARLY
from rocescope.commands.options.output import Format, Output, ReportOutput, exit_code
from rocescope.commands.options.progress import steps_shown

# Exit codes of analyses that are not complete.

# Exit codes of analyses that are not complete.


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({}, 0, ""),
        ({"complete": False}, 130, "rocescope: interrupted; the report covers"),
        ({"captures": [capture("a\x1b.pcap", damaged_places=2)]}, 4, "a?.pcap could not be read"),
        ({"warnings": [f"{ENDED_EARLY}: too much"], "complete": False}, 1, "too much; the report"),
    ],
)
def test_codes(changes, code, message, capsys):
    made = analysis(**{"captures": [capture()], "warnings": [], **changes})
    assert exit_code(made) == code
    said = capsys.readouterr().err
    assert message in said and bool(said) == bool(code) and "\x1b" not in said


# The format and the place of results.


@pytest.mark.parametrize(
    ("output", "chosen"),
    [
        (Output(), "table"),
        (Output(output=Path("/dev/stdout")), "table"),
        (Output(output=Path("a.feather")), "arrow"),
        (Output(output=Path("A.JSON")), "json"),
        (Output("csv", Path("a.json")), "csv"),
    ],
)
def test_an_option_or_the_suffix_selects_the_format(output: Output, chosen: Format) -> None:
    assert output.chosen() == chosen


def test_formats_that_cannot_be_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="suffix of a.xlsx"):
        Output(output=Path("a.xlsx")).chosen()
    with pytest.raises(UsageError, match="give --format table, json, csv, parquet or arrow"):
        Output(output=Path("a.html")).chosen()
    assert ReportOutput(output=Path("a.html")).chosen() == "html"
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(UsageError, match="parquet is binary"):
        Output("parquet").chosen()


def test_warnings_go_to_standard_error_with_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for format, said in (
        ("csv", "rocescope: two taps\n"),
        ("json", ""),
        ("html", ""),
        ("table", ""),
    ):
        to = ReportOutput(format, tmp_path / "r")  # type: ignore[arg-type]
        to.write(lambda page: page.line("report"), lambda f: f.encode(), ["two taps"])
        assert (tmp_path / "r").read_text().strip() == ("report" if format == "table" else format)
        assert capsys.readouterr().err == said


# Progress in steps.


def test_lines_of_json(capsys):
    with steps_shown("json") as tell:
        tell("seeds", 3, 10)
        tell("seeds", 10, 10)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told == [{"step": "seeds", "done": done, "total": 10} for done in (3, 10)]


def test_without_a_terminal_only_compiling_is_told_once(capsys):
    with steps_shown("auto") as tell:
        for what in ("seeds", "compiling kernels", "compiling kernels", "seeds"):
            tell(what, 1, 2)
    assert capsys.readouterr().err.count("compiling kernels") == 1


def test_none(capsys):
    with steps_shown("none") as tell:
        assert tell is None
    assert capsys.readouterr().err == ""
