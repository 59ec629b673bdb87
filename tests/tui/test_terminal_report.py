"""The report as it is printed, at several widths and on poor terminals."""

from __future__ import annotations

import io
import runpy
import unicodedata
from pathlib import Path
from typing import Any

import factories_results as factories
import pytest

from rocescope.tui.terminal_report import print_report


@pytest.fixture(scope="module")
def writer(checkout: Path) -> dict[str, Any]:
    return runpy.run_path(str(checkout / "tests" / "golden" / "write.py"))


@pytest.mark.parametrize(
    "name",
    [
        "report-80.txt",
        "report-140.txt",
        "report-ascii-80.txt",
        "report-clean-80.txt",
        "report-doubtful-80.txt",
    ],
)
def test_report_is_as_it_was(checkout: Path, writer: dict[str, Any], name: str) -> None:
    """Regenerate with `python tests/golden/write.py` after a deliberate change, and read it."""
    analysis, width, encoding = writer["REPORTS"][name]
    text = writer["report_text"](analysis, width, encoding)
    assert text == (checkout / "tests" / "golden" / name).read_text()
    assert max(map(len, text.splitlines())) <= width
    if encoding == "ascii":
        assert text.isascii()
    assert not any(unicodedata.east_asian_width(c) in "WF" for c in text)


def printed(**options: Any) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    print_report(options.pop("analysis", factories.analysis()), stream, **options)
    stream.seek(0)
    return stream.read()


def test_doubts_come_first() -> None:
    lines = printed(analysis=factories.doubtful_analysis()).splitlines()
    assert lines[1] == "▲ the capture lost 1,234 frames itself"


def test_top_cuts_tables_and_says_so() -> None:
    text = printed(top=2)
    flows = text.partition("FLOWS")[2].partition("SPRAYING")[0]
    assert flows.count("0x00") == 2 and "and 4 flows more (--top)" in flows


def test_sort_keeps_the_given_order() -> None:
    analysis = factories.analysis(flows=list(reversed(factories.analysis().flows)))
    flows = printed(analysis=analysis, sort=True).partition("FLOWS")[2].partition("SPRAYING")[0]
    assert [line[0] for line in flows.splitlines() if "0x00" in line] == list("543210")


def test_unknown_is_a_question_mark_with_a_reason() -> None:
    flow = factories.flow(0, 640, goodput_bits_per_second=None, notes=["seen for one packet only"])
    text = printed(analysis=factories.analysis(flows=[flow]))
    (row,) = (line for line in text.splitlines() if "0x0011ac  RC" in line)
    assert row.endswith(" ?")
    assert "? cannot be told from this capture\n#0: seen for one packet only" in text


def test_color_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[" not in printed()
    assert "\x1b[31m● 6,400" in printed(color="always")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m● 6,400" in printed()
    assert "\x1b[" not in printed(color="never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed()
    assert "\x1b[31m● 6,400" in printed(color="always")


def test_empty_and_huge_values_fit() -> None:
    huge = factories.flow(123_456, 10**15, src="2001:db8:1111:2222:3333:4444:5555:6666")
    for analysis in (factories.analysis(flows=[]), factories.analysis(flows=[huge])):
        assert max(map(len, printed(analysis=analysis).splitlines())) <= 80
