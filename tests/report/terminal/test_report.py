"""What the report says of mirrors, on a capture of samples, a mirror and Ultra Ethernet."""

from __future__ import annotations

import io
import struct
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import encapsulations as enc
import factories_results as factories
import msgspec
import pytest
from captures import DATA
from factories import START_NS, Frame, write_pcap
from factories_results import analysis as analysis_hosts
from factories_results import flow
from rich.console import Console
from rich.table import Table

from rocescope.analyzer.measures.conformance.options import ConformanceOptions, HostCounters
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis, LiveInterval
from rocescope.analyzer.results.base import Event
from rocescope.analyzer.results.diagnosis import Diagnosis, Severity
from rocescope.analyzer.results.flow import Owner
from rocescope.commands.generate import generate_mrc
from rocescope.report.human import ASCII, UNICODE
from rocescope.report.terminal.diagnosis import MOST_ROWS, in_full
from rocescope.report.terminal.page import Page, new_table, page_on
from rocescope.report.terminal.report import CheckReport, Report, hop_table, interval_lines, mirrors

from ...analyzer.decode.test_decoder import frame as roce

# What the report says of mirrors, on a capture of samples, a mirror and Ultra Ethernet.

# What the report says of mirrors, on a capture of samples, a mirror and Ultra Ethernet.


def test_lines_at_80_columns_hold_the_facts(tmp_path: Path) -> None:
    sample = enc.flow_sample(enc.raw_header(roce(1)), rate=1000)
    pds = struct.pack(">HHIHH", 2 << 11, 0, 9, 1, 2)
    packets = [
        enc.ethernet(0x0800, enc.ipv4(47, enc.erspan2(roce(1)))),
        enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, enc.sflow(sample)))),
        enc.ethernet(0x0800, enc.ipv4(17, enc.udp(4793, pds))),
    ]
    frames = [Frame(START_NS + i, data) for i, data in enumerate(packets)]
    path = write_pcap(tmp_path / "all.pcap", frames)
    assert mirrors(analyze([str(path)], AnalyzeOptions())) == [
        "Encapsulated frames (mirrors and tunnels): ERSPAN II 1, sFlow 1. Taps: erspan 12 from"
        " 192.0.2.1 (1), sflow interface 7 ingress from 198.51.100.4 (1).",
        "sflow interface 7 ingress from 198.51.100.4: estimated 1,000 packets, 122 kB"
        " (standard error 100.0 %)",
        "Ultra Ethernet, counted but not tracked: 1 RUD request; 54 B, 1 entropy value, PSN 9 to 9",
    ]
    plain = write_pcap(tmp_path / "plain.pcap", [Frame(START_NS, roce(1))])
    assert mirrors(analyze([str(plain)], AnalyzeOptions())) == []


# The table of hops.


@pytest.mark.parametrize("trimmed", [0, 37])
def test_trimmed_packets_have_a_column_where_there_are_any(trimmed):
    table = Table()
    hop_table(table, [factories.hop(trimmed_packets=trimmed)], UNICODE, 120)
    stream = io.StringIO()
    Console(file=stream, width=120).print(table)
    assert ("trim" in stream.getvalue(), "37" in stream.getvalue()) == (bool(trimmed),) * 2


def test_long_names_stay_different_at_80_columns():
    """Also those that differ in their middle only."""
    leaves, ports = range(1, 3), range(1, 9)
    taps = [f"leaf{n}-ethernet{p}-spine{p}-ethernet{n}-monitor" for n in leaves for p in ports]
    hops = [
        factories.hop(id=i, from_tap=near, to_tap=far, packets=1_234_567, lost_packets=i)
        for i, (near, far) in enumerate(zip(taps, reversed(taps), strict=True))
    ]
    table = new_table(1)
    hop_table(table, hops, UNICODE, 80)
    stream = io.StringIO()
    Console(file=stream, width=80).print(table)
    rows = [line.split()[:2] for line in stream.getvalue().splitlines()[1:]]
    assert len({name for row in rows for name in row}) == len(taps) == len(rows)


# Lines of a live analysis: what is in which column, and what is said before.

NOON_NS = int(time.mktime((2026, 3, 1, 12, 0, 5, 0, 0, 0))) * 10**9
INTERVAL = LiveInterval(
    interval=2,
    end_time_ns=NOON_NS,
    duration_ns=500_000_000,
    dropped_frames=0,
    dropped_frames_total=0,
    too_short_frames=0,
    merged_frames=0,
    frames=700,
    packets=600,
    wire_bytes=60_000,
    packets_per_second=1200.4,
    bits_per_second=960_000.0,
    flows=3,
    flows_total=9,
    reordered_packets=11,
    retransmitted_packets=12,
    missing_packets_total=13,
    ecn_marked_packets=14,
    cnps=15,
    naks=16,
    rnr_naks=1,
    interfaces_gone=[],
)


def test_one_line():
    (line,) = interval_lines(INTERVAL)
    assert line == (
        "12:00:05      1,200    960 kb/s      3     11       12       13      14     15     17"
    )


def test_a_heading_from_time_to_time():
    for number, lines in ((1, 2), (2, 1), (20, 1), (21, 2)):
        found = interval_lines(msgspec.structs.replace(INTERVAL, interval=number))
        assert len(found) == lines
    assert found[0] == (
        "    time  packets/s        rate  flows   late  retrans  missing      CE    CNP    NAK"
    )
    assert len(found[0]) == len(found[1])


def test_losses_of_the_capture_come_first():
    lossy = msgspec.structs.replace(
        INTERVAL, dropped_frames=1, dropped_frames_total=1200, interfaces_gone=["eth9"]
    )
    assert interval_lines(lossy)[:2] == [
        "the capture dropped 1 packet (1,200 in total): use a larger --ring",
        "interface eth9 disappeared",
    ]


# The report's section on owners.


def report(**changes) -> str:
    sink = io.StringIO()
    Report(analysis_hosts(**changes), page_on(sink)).print()
    return sink.getvalue()


def test_owners_have_a_section():
    flows = [
        flow(0, 10, owner=Owner(71, "python3", 5, "source")),
        flow(1, 20, owner=Owner(71, "python3", 5, "destination")),
        flow(2, 30, owner=Owner(72, "ib_write_bw", None)),
        flow(3, 40),
    ]
    section = report(flows=flows).partition("OWNERS\n")[2].splitlines()
    assert section[0] == "3 of 4 flows belong to 2 processes of this host."
    cells = [line.split()[-4:] for line in section[1:5]]
    assert cells == [
        ["command", "PID", "rank", "end"],
        ["ib_write_bw", "72", "-", "destination"],
        ["python3", "71", "5", "destination"],
        ["python3", "71", "5", "source"],
    ]


def test_ranks_of_logs_have_columns():
    logged = Owner(
        pid=9, command=None, rank=11, end="source", host="a\x1b[2J", peer_rank=3, comm="0xabc"
    )
    section = report(flows=[flow(0, 10, owner=logged), flow(1, 5)]).partition("OWNERS\n")[2]
    head, names, row = section.splitlines()[:3]
    assert head == "1 of 2 flows belongs to 1 process; logs name both ranks of 1 flow."
    assert "rank peer rank host" in " ".join(names.split())
    assert "9 11 3 a?[2J 0xabc source" in " ".join(row.split())


def test_perftest_has_no_process():
    logged = Owner(pid=None, command="perftest", rank=None, device="rxe0")
    section = report(flows=[flow(0, 10, owner=logged)]).partition("OWNERS\n")[2]
    assert section.startswith("1 of 1 flow belongs to perftest; logs name both ranks of 0 flows.")


def test_without_owners_there_is_none():
    assert "OWNERS" not in report(flows=[flow(0, 10)])
    assert "RDMA PORTS" not in report(flows=[flow(0, 10)])


# The report as it is printed, at several widths and on poor terminals.


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


# The conformance report: verdict first, nothing wider than the terminal, plain where asked.


@pytest.fixture(scope="module")
def analysis():
    saved = HostCounters("10.0.0.2", {"rcvd_pkts": 31_510, "out_of_seq_request": 126})
    paths = [str(DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz") for host in "AB"]
    options = AnalyzeOptions(conformance=ConformanceOptions(counters=saved))
    return analyze(paths, options)


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_fits_and_says_what_matters(monkeypatch, analysis, columns, encoding) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.TextIOWrapper(io.BytesIO(), encoding, newline="\n")
    CheckReport(analysis, page_on(stream, "never")).print()
    stream.seek(0)
    text = stream.read()
    assert max(map(len, text.splitlines())) <= int(columns)
    assert "No rule is violated: 9 rules passed" in text
    assert "before a loss" in text and "after a loss" in text
    assert "2 of 2 counters agree" in text  # with the tap on the link of the host
    assert "\x1b" not in text


def test_section_of_the_whole_report(monkeypatch, analysis) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    Report(analysis, page_on(stream, "never")).print()
    text = stream.getvalue()
    assert text.index("LOSS AND RECOVERY") < text.index("CONFORMANCE")


# The report's section on MRC, of generated captures whose truth is known.


def section(path: Path, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    Report(analyze([str(path)], AnalyzeOptions()), page_on(stream)).print()
    text = stream.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    return text.partition("\nMRC\n")[2].partition("\nCONGESTION")[0]


@pytest.mark.thorough
def test_planes_and_feedback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pcap"
    generate_mrc(output=path, messages=20, trim=0.002, ce=0.01, always_skip=2, fail_plane=2)
    text = section(path, monkeypatch)
    words = " ".join(text.split())
    assert "2 MRC flows" in words
    assert "NACK TRIMMED" in words
    assert "4 ALWAYS_SKIP" in words
    assert "4 planes (by segment:1, inferred, see --plane-by) differ" in words
    assert "flow label in the high half, UDP source port in the low half" in words
    assert "port 2 declared unreachable for 210 us" in words
    assert "fcbb:bb00:0200" in text
    wide = section(path, monkeypatch, 140)
    assert "depth p99" in wide


def test_what_is_not_known_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.pcap"
    generate_mrc(output=path, messages=1, no_srv6=True, tap="receiver")
    words = " ".join(section(path, monkeypatch).split())
    assert "Planes are not known: neither SRv6 segments nor several taps" in words
    assert "0 of 512 packets are retransmissions" in words


def test_no_section_without_mrc(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert section(data / "c10_rping_ipv4.atB.pcap", monkeypatch) == ""


# The diagnosis at the beginning of the report.

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")
FINDING = factories.diagnosis().findings[0]
CAPTURED = "captured 2023-11-14 22:13:20.000 to 22:13:21.000 UTC"


def printed_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """The lines after that of the time of capture, which is there where it fits."""
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    Report(factories.analysis(diagnosis=diagnosis), page_on(stream, "never"), brief=True).print()
    stream.seek(0)
    first, *lines = stream.read().splitlines()
    if first == CAPTURED:
        return lines
    assert not first.startswith("captured")
    return [first, *lines]


def longest(findings: int, words: int = 60) -> Diagnosis:
    long = msgspec.structs.replace(FINDING, sentence="; ".join(["a clause of words"] * words))
    limits = ["this capture does not tell what happens after it, nor why it happens"] * 5
    return Diagnosis("", [long] * findings, limits, limits)


def test_every_severity_has_its_mark_and_no_mark_needs_colour() -> None:
    found = [msgspec.structs.replace(FINDING, severity=severity) for severity in SEVERITIES]
    three = Diagnosis("", found, [], [])
    assert [line.mark for line in in_full(three, 0, UNICODE)] == ["✗", "!", "·"]
    assert [line.mark for line in in_full(three, 0, ASCII)] == ["x", "!", "-"]


def test_brief_fits_80_columns_and_ends_after_the_limits() -> None:
    text = printed_diagnosis(factories.diagnosis())
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
    text = printed_diagnosis(longest(findings))
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
    text = printed_diagnosis(longest(3))
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
        text = printed_diagnosis(msgspec.structs.replace(diagnosis, healthy=claims))
        begin = next(n for n, line in enumerate(text) if line.startswith("✓ "))
        end = next(n for n, line in enumerate(text) if line.startswith("? "))
        assert " ".join(map(str.strip, text[begin:end])) in (*said, "✓ 3 checks passed")


def test_of_a_limit_that_does_not_fit_the_reason_goes_first() -> None:
    limit = (
        "4 captures do not state dropped frames: pcapng from dumpcap or rocescope does, others not"
    )
    cut = msgspec.structs.replace(longest(3), limits=[limit, "c"])
    assert printed_diagnosis(cut)[-1] == "? 4 captures do not state dropped frames …; 1 more"


def test_a_long_name_takes_no_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    name = msgspec.structs.replace(FINDING, sentence="a" * 300, next_step="")
    text = printed_diagnosis(Diagnosis("", [name] * 3, ["12 hops: no loss"] * 9, ["b" * 300, "c"]))
    assert len(text) <= MOST_ROWS
    assert max(map(len, text)) <= 20
    assert any(line.endswith("…; 1 more") for line in text)


def test_the_report_ends_with_what_the_first_rows_leave_out() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    cut = longest(9, 3)
    Report(factories.analysis(diagnosis=cut), page_on(stream, "never")).print()
    stream.seek(0)
    text = stream.read().splitlines()
    assert text[0] == CAPTURED
    assert text[1].endswith("(in full at the end)")
    rest = text[text.index("DIAGNOSIS IN FULL") :]
    assert sum(line.startswith("! ") for line in rest) == 9
    assert sum(line.startswith("✓ ") for line in rest) == 5
    assert sum(line.startswith("? ") for line in rest) == 5


def test_a_tick_needs_a_check_that_passed() -> None:
    assert printed_diagnosis(Diagnosis("", [], [], [])) == [
        "DIAGNOSIS  no finding",
        "? No check covers this traffic.",
    ]
    healthy = Diagnosis("", [], ["12 hops, 106,394 packet hops: no loss", "no NAK"], [])
    assert (
        printed_diagnosis(healthy)[1] == "✓ healthy: 12 hops, 106,394 packet hops: no loss; no NAK"
    )
    part = printed_diagnosis(msgspec.structs.replace(healthy, complete=False))
    assert part[1].startswith("? healthy in the part that was read: 12 hops")
    assert "✓" not in "".join(part)
