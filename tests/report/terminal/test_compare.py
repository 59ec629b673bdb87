"""The comparison on a terminal."""

from __future__ import annotations

import io

import factories_results as factories
import msgspec

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.report.compare import compare
from rocescope.report.terminal.compare import fill_comparison
from rocescope.report.terminal.page import page_on

LOSS, SPRAYING = factories.diagnosis().findings


def printed(before: Analysis, after: Analysis, top: int = 20) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    result = compare(before, after, ("a.json", "b\x1b[2J.json"))
    fill_comparison(page_on(stream, "never"), result, top)
    stream.seek(0)
    return stream.read()


def test_what_changed_comes_first_with_both_shares() -> None:
    more = msgspec.structs.replace(LOSS, packets=790, share_percent=10.0)
    after = factories.analysis(diagnosis=Diagnosis("", [more], [], []))
    lines = printed(factories.analysis(), after).splitlines()
    assert lines[0] == "a.json → b?[2J.json: worse (findings: 1 worse, 1 gone)"
    text = " ".join(" ".join(lines).split())
    assert "! worse: spine2 drops" in text
    assert "(before: 0.90 %, 71 of 7,904, after: 10.0 %, 790 of 7,904)" in text
    assert "· gone: 10.0.1.3 sprays 1 flow" in text
    assert max(map(len, lines[1:])) <= 80


def test_hops_that_changed() -> None:
    quiet = Diagnosis("", [], [], [])
    hops = [factories.hop(), factories.hop(from_tap="leaf2-spine2", to_tap="leaf1-spine2")]
    slow = factories.hop(lost_packets=0, queueing_ns=factories.quantiles(7_833, 0, 300, 400_000))
    back = factories.hop(from_tap="leaf2-spine2", to_tap=None, packets=9, lost_packets=9)
    before = factories.analysis(diagnosis=quiet, hops=hops)
    text = printed(before, factories.analysis(diagnosis=quiet, hops=[slow, back]))
    rows = text[text.index("HOPS") : text.index("\nFLOWS")].splitlines()
    assert [" ".join(row.split()) for row in rows[1:] if row] == [
        "from to change what",
        "leaf1-spine2 leaf2-spine2 worse queueing p99 7.60 us → 400 us, lost 71 (0.90 %)",
        "→ 0 (0 %)",
        "leaf2-spine2 ? new 9 packets, 9 lost",
        "leaf2-spine2 leaf1-spine2 gone 7,904 packets, 71 lost",
    ]
    text = printed(before, before)
    assert "2 hops are unchanged." in text and "queueing" not in text
    assert "... 2 changed hops not shown" in printed(before, factories.analysis(hops=[back]), 1)


def test_flows_that_changed_and_the_number_of_the_others() -> None:
    flows = factories.analysis().flows
    lossy = msgspec.structs.replace(flows[1], recovered_packets=400)
    quiet = Diagnosis("", [], [], [])
    before = factories.analysis(diagnosis=quiet)
    after = factories.analysis(diagnosis=quiet, flows=[flows[0], lossy])
    text = printed(before, after)
    assert "Neither analysis has a finding." in text
    assert "1 flow is unchanged." in text
    assert "lost 0 (0 %) → 400 (1.0 %)" in text
    assert "... 4 changed flows not shown (--top)" in printed(before, after, top=1)
