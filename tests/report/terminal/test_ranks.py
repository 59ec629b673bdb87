"""The report's tables of ranks."""

from __future__ import annotations

import io

import pytest
from factories_results import analysis, flow
from job_logs import LOSSY, write_logs
from msgspec.structs import replace

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import CommunicatorTiming, Ranks, RankTiming
from rocescope.analyzer.results.base import Quantiles
from rocescope.analyzer.results.flow import Owner
from rocescope.analyzer.summary.ranks import ranks_of
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.ranks import gone, lost_packets
from rocescope.report.terminal.report import Report


def owned(number, sender, receiver, comm="0xabc", requests=10, **changes):
    one = flow(number, 10, owner=Owner(1, None, sender, "source", "n", None, comm, receiver))
    return replace(one, request_packets=requests, **changes)


def report(flows, timing=(), width=80, monkeypatch=None):
    ranks = ranks_of(flows, None)
    result = analysis(flows=flows)
    if ranks is not None:
        result = replace(result, ranks=replace(ranks, timing=list(timing)))
    sink = io.StringIO()
    if monkeypatch is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    Report(result, page_on(sink)).print()
    return sink.getvalue().partition("RANKS\n")[2].partition("\nSPRAYING")[0]


def test_flows_of_each_pair_of_ranks():
    flows = [
        owned(0, 11, 3),
        owned(1, 11, 3),
        owned(2, 3, 11),
        owned(3, 11, 3, comm="0xdef"),
        owned(4, 11, None),
        owned(5, 11, 3, comm=None),
        flow(6, 10),
        replace(owned(7, 3, 11, requests=0), response_packets=0),
    ]
    found = {(one.comm, one.sender, one.receiver): one.flows for one in ranks_of(flows, None).pairs}
    assert found == {("0xabc", 11, 3): 2, ("0xabc", 3, 11): 1, ("0xdef", 11, 3): 1}
    assert next(iter(found)) == ("0xabc", 11, 3)  # most bytes


def test_the_section_sums_and_never_makes_up_a_number():
    flows = [
        owned(0, 11, 3, retransmitted_packets=5, recovered_packets=2, missing_packets=1),
        owned(1, 11, 3, retransmitted_packets=7, recovered_packets=1, missing_packets=None),
    ]
    section = report(flows).splitlines()
    assert section[0] == "Data passes between 1 pair of ranks."
    row = section[2].split()
    assert row[:2] == ["11", "3"]
    assert row[4:7] == ["12", "3", "?"]


def test_packets_lost_between_taps_count_as_in_the_other_tables():
    flows = [
        owned(0, 11, 3, recovered_packets=2, lost_between_taps=40, missing_packets=1),
        owned(1, 3, 11, recovered_packets=5, lost_between_taps=0, missing_packets=0),
        owned(2, 11, 3, recovered_packets=None, lost_between_taps=3, missing_packets=None),
        owned(3, 3, 11, comm="0xdef", recovered_packets=None, missing_packets=0),
        owned(4, 11, 3, comm="0xdef", recovered_packets=0, lost_between_taps=9, missing_packets=0),
    ]
    pairs = {(one.comm, one.sender): one for one in ranks_of(flows, None).pairs}
    found = {key: (lost_packets(one), gone(one)) for key, one in pairs.items()}
    assert found == {
        ("0xabc", 11): (43, 43),
        ("0xabc", 3): (5, 5),
        ("0xdef", 11): (9, 9),
        ("0xdef", 3): (None, None),
    }
    assert list(pairs)[:3] == [("0xabc", 11), ("0xdef", 11), ("0xabc", 3)]  # worst first


def test_without_logs_there_is_none():
    assert report([flow(0, 10)]) == ""


@pytest.mark.parametrize(("width", "columns"), [(80, 6), (160, 13)])
def test_the_matrix_shows_the_worst_ranks_and_says_what_it_leaves_out(width, columns, monkeypatch):
    number = iter(range(10**6))
    flows = [
        owned(next(number), a, b, recovered_packets=50 * (a == 40), missing_packets=0)
        for a in range(64)
        for b in range(64)
        if (a - b) % 64 in (1, 63)
    ]
    text = report(flows, width=width, monkeypatch=monkeypatch)
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith("from / to"))
    shown = head.split()[3:]
    assert len(shown) == columns and {"39", "40", "41"} <= set(shown)
    assert f"{64 - columns} ranks not shown" in " ".join(text.split())
    assert "108 pairs not shown" in text
    assert sum("50 lost" in line for line in lines) == 1
    assert max(map(len, lines)) <= width


def timed(rank, last, waits):
    late = Quantiles(4, 0, 5e6, 5e6, 5e6, 5e6, 5e6, 5e6)
    return RankTiming(
        rank=rank, last=last, late_ns=late, others_wait_ns=waits, ring_steps=None,
        waits_ns=None, holds_ns=None,
    )  # fmt: skip


def test_the_slowest_rank_is_named_and_unknown_orders_are_told():
    base = CommunicatorTiming(
        comm="0xabc", collectives=4, partial=0, ranks=[timed(3, 4, 8_000_000), timed(11, 0, 0)],
        slowest=3, waits_least=None, why=[],
    )  # fmt: skip
    flows = [owned(0, 11, 3), owned(1, 3, 11)]
    text = " ".join(report(flows, [base]).split())
    assert "Rank 3 arrives last in 4 of 4 collectives, 5.00 ms after the first (median)" in text
    assert "the others wait 8.00 ms for it" in text
    assert "waits holds" not in text.partition("others wait")[2][:20]
    unknown = replace(base, collectives=0, ranks=[], slowest=None, why=["no ring"])
    assert "Arrival order unknown: no ring." in report(flows, [unknown])
    few = replace(base, collectives=2, slowest=None)
    assert "too few to name" in " ".join(report(flows, [few]).split())
    assert Ranks(pairs=[], timing=[]).timing == []


def test_every_table_of_flows_and_the_events_name_ranks(data, tmp_path):
    options = AnalyzeOptions(job_logs=(write_logs(tmp_path, data),))
    sink = io.StringIO()
    Report(analyze([str(data / LOSSY)], options), page_on(sink), top=3).print()
    for title in ("FLOWS", "LOSS AND RECOVERY", "MESSAGES AND LATENCY"):
        section = sink.getvalue().partition(f"\n{title}\n")[2].partition("\n\n")[0]
        assert " ranks " in section and section.count(" 11>3 ") == 3
    events = sink.getvalue().partition("\nEVENTS\n")[2].partition("\n\n")[0]
    assert " 3>11 " in events and " 11>3 " in events
    sink = io.StringIO()
    Report(analyze([str(data / LOSSY)], AnalyzeOptions()), page_on(sink)).print()
    assert " ranks " not in sink.getvalue()
