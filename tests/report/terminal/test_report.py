"""The report as it is printed, at several widths and on poor terminals."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from typing import Any

import factories_results as factories
import msgspec
import pytest
from rich.console import Console

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.events import Event
from rocescope.report.terminal.page import Page, page_on
from rocescope.report.terminal.report import Report


def report_text(analysis: Analysis, width: int, encoding: str) -> str:
    """The report as a terminal of this width and encoding shows it, without colours."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    console = Console(
        file=stream, width=width, color_system=None, force_terminal=False, highlight=False
    )
    Report(analysis, Page(console), 20, False).print()
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize(
    ("name", "make", "width", "encoding"),
    [
        ("report-80", factories.analysis, 80, "utf-8"),
        ("report-140", factories.analysis, 140, "utf-8"),
        ("report-ascii-80", factories.analysis, 80, "ascii"),
        ("report-clean-80", factories.clean_analysis, 80, "utf-8"),
        ("report-doubtful-80", factories.doubtful_analysis, 80, "utf-8"),
    ],
)
def test_report_is_as_it_was(
    golden: Callable[[str, str], None],
    name: str,
    make: Callable[[], Analysis],
    width: int,
    encoding: str,
) -> None:
    text = report_text(make(), width, encoding)
    golden(f"tests/golden/{name}.txt", text)
    assert max(map(len, text.splitlines())) <= width
    if encoding == "ascii":
        assert text.isascii()
    assert not any(unicodedata.east_asian_width(c) in "WF" for c in text)


def printed(**options: Any) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    analysis = options.pop("analysis", factories.analysis())
    Report(analysis, page_on(stream, options.pop("color", "auto")), **options).print()
    stream.seek(0)
    return stream.read()


def test_doubts_come_first() -> None:
    lines = printed(analysis=factories.doubtful_analysis()).splitlines()
    after = lines.index("")  # the diagnosis
    assert lines[after + 2] == "▲ the capture lost 1,234 frames itself"


def test_top_cuts_tables_and_says_so() -> None:
    text = printed(top=2)
    flows = text.partition("FLOWS")[2].partition("SPRAYING")[0]
    assert flows.count("0x00") == 2 and "... 4 flows not shown (--top)" in flows


def test_sort_keeps_the_given_order() -> None:
    analysis = factories.analysis(flows=list(reversed(factories.analysis().flows)))
    flows = printed(analysis=analysis, sorted=True).partition("FLOWS")[2].partition("SPRAYING")[0]
    assert [line[0] for line in flows.splitlines() if "0x00" in line] == list("543210")


def test_unknown_is_a_question_mark_with_a_reason() -> None:
    flow = factories.flow(0, 640, goodput_bits_per_second=None, notes=["seen for one packet only"])
    text = printed(analysis=factories.analysis(flows=[flow]))
    (row,) = (line for line in text.splitlines() if "0x0011ac  RC" in line)
    assert row.endswith(" ?")
    assert "?: not known from this capture\n#0: seen for one packet only" in text


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


@pytest.mark.parametrize("width", [60, 72, 110, 120, 130])
def test_columns_that_do_not_fit_are_left_out_whole(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed().splitlines()
    flows = [line for line in lines if "0x00" in line and "--filter" not in line]
    assert len(flows) > 10 and max(map(len, flows)) <= width
    assert not any("…" in line.replace("2001:db…7::1:16", "") for line in flows)


def test_the_line_of_the_captures_says_what_a_filter_left_and_what_are_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    half = factories.capture(roce_packets=300, frames=300)
    flow = factories.flow(0, 100, tap_copies=100)
    text = printed(analysis=factories.analysis(captures=[half], flows=[flow]))
    lines = text.splitlines()
    first = lines[lines.index("") + 1]
    assert "200 of 300 RoCE packets (100 already seen at another tap) in 1.00 s" in first
    none = printed(analysis=factories.analysis(captures=[half], flows=[], warnings=["filter"]))
    assert "0 of 300 RoCE packets" in none and "No RoCE packet passes the filter." in none


def test_events_and_notes_never_cite_a_flow_that_no_table_lists() -> None:
    quiet = {"messages": 0, "notes": ["seen for one packet only"]}
    flows = [factories.flow(i, 100 - i, **quiet) for i in range(5)]
    name = f"{flows[4].src} > {flows[4].dst} QP 0x{flows[4].dest_qp:06x}"
    events = [
        Event(factories.START_NS, "nak", flow, 1, "leaf1", f"{name}: NAK PSN sequence error")
        for flow in (0, 4)
    ]
    text = printed(analysis=factories.analysis(flows=flows, events=events), top=2)
    assert "#4" not in text
    shown = text.partition("EVENTS")[2]
    assert "#0" in shown and "10.0.1.3 > 10.0.7.3 QP 0x0011b0: NAK" in " ".join(shown.split())
    assert "#0, #1, 3 other flows: seen for one packet only" in text


def test_times_of_events_count_from_the_first_roce_packet_like_those_of_findings() -> None:
    first = min(flow.first_time_ns for flow in factories.analysis().flows)
    early = factories.capture(first_time_ns=first - 1_500_000_000)
    event = Event(first + 250_000_000, "nak", 0, 1, "leaf1", "NAK PSN sequence error")
    text = printed(analysis=factories.analysis(captures=[early], events=[event]))
    assert "0.250000" in text.partition("EVENTS")[2]


@pytest.mark.parametrize(
    ("complete", "healthy", "tick"),
    [(True, ["all"], True), (False, ["all"], False), (True, [], False)],
    ids=["checked", "a part was read", "filtered"],
)
def test_a_section_has_a_tick_only_for_checks_of_everything(
    complete: bool, healthy: list[str], tick: bool
) -> None:
    clean = factories.clean_analysis()
    found = msgspec.structs.replace(clean.diagnosis, complete=complete, healthy=healthy)
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    Report(msgspec.structs.replace(clean, diagnosis=found), page_on(stream, "never")).print()
    stream.seek(0)
    assert ("LOSS AND RECOVERY  ✓" in stream.read()) == tick
