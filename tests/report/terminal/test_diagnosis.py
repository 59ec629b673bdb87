"""The diagnosis at the beginning of the report."""

from __future__ import annotations

import io

import factories_results as factories
import msgspec

from rocescope.analyzer.results.diagnosis import Diagnosis, Severity
from rocescope.report.terminal.diagnosis import lines
from rocescope.report.terminal.report import print_report
from rocescope.report.words.human import ASCII, UNICODE

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")
FINDING = factories.diagnosis().findings[0]


def printed(diagnosis: Diagnosis) -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    print_report(factories.analysis(diagnosis=diagnosis), stream, color="never", brief=True)
    stream.seek(0)
    return stream.read().splitlines()


def test_every_severity_has_its_mark_and_no_mark_needs_colour() -> None:
    found = [msgspec.structs.replace(FINDING, severity=severity) for severity in SEVERITIES]
    three = Diagnosis("", found, [], [])
    assert [line.mark for line in lines(three, UNICODE)] == ["✗", "!", "·"]
    assert [line.mark for line in lines(three, ASCII)] == ["x", "!", "-"]


def test_brief_fits_80_columns_and_ends_after_the_limits() -> None:
    text = printed(factories.diagnosis())
    assert text[0] == "DIAGNOSIS  1 warning, 1 note"
    assert text[1].startswith("! spine2 drops 0.9 % (71 of 7,904)")
    assert text[2].startswith("  ")
    assert max(map(len, text)) <= 80
    assert text[-1] == f"? {factories.diagnosis().limits[0]}"
    assert not any("FLOWS" in line for line in text)


def test_eight_findings_at_most_then_their_number() -> None:
    marked = [line for line in printed(Diagnosis("", [FINDING] * 11, [], [])) if line[0] != " "]
    assert len(marked) == 9
    found = list(lines(Diagnosis("", [FINDING] * 11, [], ["limit"] * 7), ASCII))
    assert "... 3 findings not shown" in found[8].text
    assert "... 3 limits not shown" in found[-1].text


def test_a_tick_needs_a_check_that_passed() -> None:
    assert printed(Diagnosis("", [], [], [])) == [
        "DIAGNOSIS  no finding",
        "? No check covers this traffic.",
    ]
    healthy = Diagnosis("", [], ["12 hops, 106,394 passages: no loss", "no NAK"], [])
    assert printed(healthy)[1] == "✓ healthy: 12 hops, 106,394 passages: no loss; no NAK"
