"""The diagnosis at the beginning of the report."""

from __future__ import annotations

import io

import factories_results as factories
import msgspec
import pytest

from rocescope.analyzer.results.diagnosis import Diagnosis, Severity
from rocescope.report.human import ASCII, UNICODE
from rocescope.report.terminal.diagnosis import MOST_ROWS, in_full
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")
FINDING = factories.diagnosis().findings[0]


def printed(diagnosis: Diagnosis) -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    Report(factories.analysis(diagnosis=diagnosis), page_on(stream, "never"), brief=True).print()
    stream.seek(0)
    return stream.read().splitlines()


def longest(findings: int, words: int = 60) -> Diagnosis:
    long = msgspec.structs.replace(FINDING, sentence="; ".join(["a clause of words"] * words))
    limits = ["this capture does not tell what happens after it, nor why it happens"] * 5
    return Diagnosis("", [long] * findings, limits, limits)


def test_every_severity_has_its_mark_and_no_mark_needs_colour() -> None:
    found = [msgspec.structs.replace(FINDING, severity=severity) for severity in SEVERITIES]
    three = Diagnosis("", found, [], [])
    assert [line.mark for line in in_full(three, UNICODE)] == ["✗", "!", "·"]
    assert [line.mark for line in in_full(three, ASCII)] == ["x", "!", "-"]


def test_brief_fits_80_columns_and_ends_after_the_limits() -> None:
    text = printed(factories.diagnosis())
    assert text[0] == "DIAGNOSIS  1 warning, 1 note"
    assert text[1].startswith("! spine2 drops 0.9 % (71 of 7,904)")
    assert text[2].startswith("  ")
    assert max(map(len, text)) <= 80
    assert text[-1] == f"? {factories.diagnosis().limits[0]}"
    assert not any("FLOWS" in line for line in text)


@pytest.mark.thorough
@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("findings", [0, 1, 2, 5, 6, 40])
def test_at_most_eight_rows_however_much_there_is_to_say(
    findings: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = printed(longest(findings))
    assert len(text) <= MOST_ROWS
    assert max(map(len, text)) <= columns
    assert "(in full: --format json)" in " ".join(" ".join(text).split()) or not findings
    assert any(line.startswith("✓ ") for line in text)
    assert any(line.startswith("? ") for line in text)
    shown = sum(line.startswith("! ") for line in text)
    assert shown or not findings
    if findings > shown and columns >= 30:
        assert f"  ... {findings - shown} findings not shown" in text


def test_what_is_cut_says_so_and_the_worst_finding_loses_least() -> None:
    text = printed(longest(3))
    at = [n for n, line in enumerate(text) if line.startswith("! ")]
    assert at[1] - at[0] == 3 and at[2] - at[1] == 1
    assert text[at[1]].endswith("…")
    assert text[-1].endswith("; 4 more")


@pytest.mark.thorough
@pytest.mark.parametrize("columns", range(20, 81, 6))
def test_a_claim_is_whole_or_counted(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    claims = [
        "19,118 request and response packets: none duplicated before the first tap, from the first"
        " captured packet of each flow on",
        "480 ACKs: no NAK, no RNR NAK",
        "8 queue pairs: none stalled",
    ]
    whole = ["; ".join(claims[:kept]) for kept in (1, 2, 3)]
    said = [
        f"✓ healthy: {text}{left}"
        for text, left in zip(whole, ("; 2 more", "; 1 more", ""), strict=True)
    ]
    for findings in (0, 1, 9):
        diagnosis = longest(findings)
        text = printed(msgspec.structs.replace(diagnosis, healthy=claims))
        begin = next(n for n, line in enumerate(text) if line.startswith("✓ "))
        end = next(n for n, line in enumerate(text) if line.startswith("? "))
        assert " ".join(map(str.strip, text[begin:end])) in (*said, "✓ 3 checks passed")


def test_of_a_limit_that_does_not_fit_the_reason_goes_first() -> None:
    limit = (
        "4 captures do not state dropped frames: pcapng from dumpcap or rocescope does, others not"
    )
    cut = msgspec.structs.replace(longest(3), limits=[limit, "c"])
    assert printed(cut)[-1] == "? 4 captures do not state dropped frames …; 1 more"


def test_a_long_name_takes_no_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    name = msgspec.structs.replace(FINDING, sentence="a" * 300, next_step="")
    text = printed(Diagnosis("", [name] * 3, ["12 hops: no loss"] * 9, ["b" * 300, "c"]))
    assert len(text) <= MOST_ROWS
    assert max(map(len, text)) <= 20
    assert any(line.endswith("…; 1 more") for line in text)


def test_the_report_ends_with_what_the_first_rows_leave_out() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    cut = longest(9, 3)
    Report(factories.analysis(diagnosis=cut), page_on(stream, "never")).print()
    stream.seek(0)
    text = stream.read().splitlines()
    assert text[0].endswith("(in full at the end)")
    rest = text[text.index("DIAGNOSIS IN FULL") :]
    assert sum(line.startswith("! ") for line in rest) == 9
    assert sum(line.startswith("✓ ") for line in rest) == 5
    assert sum(line.startswith("? ") for line in rest) == 5


def test_a_tick_needs_a_check_that_passed() -> None:
    assert printed(Diagnosis("", [], [], [])) == [
        "DIAGNOSIS  no finding",
        "? No check covers this traffic.",
    ]
    healthy = Diagnosis("", [], ["12 hops, 106,394 packet hops: no loss", "no NAK"], [])
    assert printed(healthy)[1] == "✓ healthy: 12 hops, 106,394 packet hops: no loss; no NAK"
    part = printed(msgspec.structs.replace(healthy, complete=False))
    assert part[1].startswith("? healthy in the part that was read: 12 hops")
    assert "✓" not in "".join(part)
