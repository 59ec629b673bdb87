"""The report of `discover`."""

from __future__ import annotations

import io

import factories_results as factories
import msgspec
import pytest
from answers import recorded, traffic_of, truth

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.discovery.asking import Said
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.follow import FollowEvent, FollowSummary, Move
from rocescope.discovery.results import Discovery, Remark
from rocescope.discovery.tracing.asking import Asking
from rocescope.discovery.tracing.trace import trace
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.compare import compare
from rocescope.report.terminal.compare import fill_comparison
from rocescope.report.terminal.discovery import FollowPrinter, fill_discovery
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.trace import fill_trace

# The report of `discover`.

# The report of `discover`.


def printed(report: Discovery) -> str:
    stream = io.StringIO()
    fill_discovery(page_on(stream, "never"), report)
    return stream.getvalue()


def test_findings_come_first(tmp_path):
    text = printed(discover_folder(recorded(tmp_path) / "flapped", 10**10, 500).report)
    lines = text.splitlines()
    assert "lost member: leaf1: swp3 to spine2 swp1 has a link and its LLDP peer" in lines[1]
    assert text.index("lost member: spine2") < text.index("management network:")
    assert any(line.split()[:3] == ["leaf1-spine2#2", "swp4", "-"] for line in lines)
    assert "buckets of resilient groups" in text


def test_a_clean_fabric_has_no_finding(tmp_path):
    text = printed(discover_folder(recorded(tmp_path) / "healthy", 10**10, 500).report)
    assert "lost member" not in text


def test_names_of_devices_steer_no_terminal():
    report = Discovery(
        version="0", source="\x1b[2J", hosts=1, switches=1, devices=[], links=[],
        switches_without_tables=["via \x1b[2J"],
        remarks=[Remark(kind="conflict", device="\x07", text="\x1b]0;x")],
    )  # fmt: skip
    assert not set(printed(report)) & {"\x1b", "\x07"}


def test_remarks_of_a_kind_are_bounded():
    """The others are counted; one kind hides no other."""
    many = [Remark(kind="conflict", device=f"leaf{i}", text="x") for i in range(5000)]
    report = Discovery(
        version="0", source="x", hosts=1, switches=1, devices=[], links=[],
        switches_without_tables=[f"leaf{i}" for i in range(5000)],
        remarks=[*many, Remark(kind="no answer", device="h1", text="timeout")],
    )  # fmt: skip
    text = printed(report)
    assert len(text.splitlines()) < 60
    assert "4,980 remarks: conflict not shown: --format json has all" in text
    assert text.index("no answer: h1") < text.index("conflict: leaf0")
    assert "and 4,980 more" in text


# Events on a terminal.


def event(kind, *devices, **values):
    given = {
        "time": "2026-01-01T12:00:01.250+00:00",
        "seconds": 1.25,
        "flows": 8,
        "complete_flows": 8,
        "moved_flows": 0,
        "moves": [],
        "fim_percent": 25.0,
        "lost_devices": [],
    }
    return FollowEvent(kind=kind, devices=list(devices), **(given | values))


def move(number, after="leaf1>spine2"):
    return Move(
        flow=number, src="10.0.0.1", dst="10.0.0.2", src_port=50000 + number, dest_qp=number,
        before=["h1>leaf1", "leaf1>spine1"], after=["h1>leaf1", after] if after else ["h1>leaf1"],
        ends_because=None if after else "no route",
    )  # fmt: skip


def printed_follow(*events, top=2):
    stream = io.StringIO()
    printer = FollowPrinter(stream, top, "never")
    for one in events:
        printer.event(one)
    return stream.getvalue().splitlines(), printer, stream


def test_a_line_for_each_event_and_the_flows_that_moved():
    moves = [move(1), move(2), move(3), move(4, "")]
    lines, *_ = printed_follow(
        event("began", "leaf1", "spine1"),
        event("changed", "leaf1", moved_flows=4, moves=moves, fim_percent=50.0, complete_flows=7),
    )
    assert lines[0] == (
        "12:00:01.250 following 8 flows over 2 switches, 8 with a known path; FIM 25.0 %"
    )
    assert lines[1] == (
        "12:00:01.250 leaf1 changed: 4 flows moved, 7 of 8 with a known path; FIM 50.0 % "
        "(before 25.0 %)"
    )
    assert lines[2] == "  3 flows: leaf1>spine1 to leaf1>spine2"
    assert lines[3] == "  1 flow: leaf1>spine1 to no link (no route)"
    assert lines[4].startswith("  10.0.0.1>10.0.0.2 QP 0x000001 port 50001: h1>leaf1 leaf1>spine1")
    assert lines[-1] == "  and 2 flows more"


def test_new_flows_with_their_paths_and_ranks():
    new = [msgspec.structs.replace(move(i), before=[], src_rank=0, dst_rank=None) for i in range(3)]
    lines, *_ = printed_follow(event("flows", new_flows=3, moves=new))
    assert lines[0] == ("12:00:01.250 3 new flows: 8 of 8 with a known path; FIM 25.0 %")
    assert lines[1] == (
        "  10.0.0.1>10.0.0.2 QP 0x000000 port 50000 ranks 0>?: h1>leaf1 leaf1>spine2"
    )
    assert lines[-1] == "  and 1 flow more"


def test_remarks_are_bounded():
    lines, *_ = printed_follow(
        event("changed", "leaf1", remarks=[f"remark {i}" for i in range(500)])
    )
    assert len(lines) < 6
    assert "498 remarks not shown: --format json has all" in lines[-1]


def test_lost_devices_are_named_until_the_end():
    lines, printer, stream = printed_follow(
        event("began", "leaf1", lost_devices=["spine9"]),
        event("lost", "leaf1", problem="no answer\x1b[31m", lost_devices=["leaf1", "spine9"]),
        event("back", "leaf1", lost_devices=["spine9"]),
    )
    assert any("lost: 1 switch: spine9" in line for line in lines)
    assert any("leaf1 lost: no answer" in line for line in lines)
    assert "leaf1 back" in lines[-1]
    assert "\x1b" not in stream.getvalue()
    summary = FollowSummary(
        seconds=90.0, changes=3, readings=12, fim_least_percent=25.0, fim_most_percent=50.0,
        ever_lost={"leaf1": 4.0},
    )  # fmt: skip
    printer.summary(event("ended", moved_flows=4, lost_devices=["spine9"]), summary)
    text = " ".join(stream.getvalue().split())
    assert "3 changes in" in text
    assert "FIM was 25.0 % to 50.0 %" in text
    assert "leaf1 was lost for 4" in text
    assert "no answer since the start: 1 switch: spine9" in text


# The report of `trace`.


def printed_trace(folder, *strategies):
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    stream = io.StringIO()
    others = [parse_strategy(s) for s in strategies]
    fill_trace(page_on(stream), trace(units, fabric, others, ["x"], advice=True), 3)
    return " ".join(stream.getvalue().split())


@pytest.mark.thorough
def test_known_paths_loads_and_flows(tmp_path):
    text = printed_trace(recorded(tmp_path), "static")
    assert "The path of 256 of 256 flows is known to the destination." in text
    assert "static changes the FIM of flows from" in text
    assert "leaf1 leaf-spine 4" in text
    assert "LARGEST FLOWS" in text


def test_paths_that_end_early_are_named_and_nothing_else_is_claimed(tmp_path):
    folder = recorded(tmp_path)
    for name in ("leaf1", "leaf2"):
        (folder / "healthy" / f"{name}.sysctl").unlink()
    text = printed_trace(folder, "static")
    assert "The path of 0 of 256 flows is known to the destination." in text
    assert "128 paths not known from here on: at leaf1, the hash or the seed" in text
    assert "STRATEGIES" not in text
    assert "No advice: no flow with a known path runs between switches." in text
    assert "256 flows left out: their paths are not known" in text
    assert "h1>leaf1 ?" in text


def test_a_switch_that_answers_nothing_is_not_among_those_that_answered(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    asking = Asking(lambda asked: [Said(b"", "no route to host") for _ in asked], "all")
    stream = io.StringIO()
    fill_trace(page_on(stream), trace(units, fabric, [], ["x"], asking=asking), 3)
    text = " ".join(stream.getvalue().split())
    assert "0 of 512 questions answered by 0 switches" in text
    assert "leaf1 answered 0 of 128 questions: no route to host" in text


# The comparison on a terminal.

LOSS, SPRAYING = factories.diagnosis().findings


def printed_compare(before: Analysis, after: Analysis, top: int = 20) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    result = compare(before, after, ("a.json", "b\x1b[2J.json"))
    fill_comparison(page_on(stream, "never"), result, top)
    stream.seek(0)
    return stream.read()


def test_what_changed_comes_first_with_both_shares() -> None:
    more = msgspec.structs.replace(LOSS, packets=790, share_percent=10.0)
    after = factories.analysis(diagnosis=Diagnosis("", [more], [], []))
    lines = printed_compare(factories.analysis(), after).splitlines()
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
    text = printed_compare(before, factories.analysis(diagnosis=quiet, hops=[slow, back]))
    rows = text[text.index("HOPS") : text.index("\nFLOWS")].splitlines()
    assert [" ".join(row.split()) for row in rows[1:] if row] == [
        "from to change what",
        "leaf1-spine2 leaf2-spine2 worse queueing p99 7.60 us → 400 us, lost 71 (0.90 %)",
        "→ 0 (0 %)",
        "leaf2-spine2 ? new 9 packets, 9 lost",
        "leaf2-spine2 leaf1-spine2 gone 7,904 packets, 71 lost",
    ]
    text = printed_compare(before, before)
    assert "2 hops are unchanged." in text and "queueing" not in text
    assert "... 2 changed hops not shown" in printed_compare(
        before, factories.analysis(hops=[back]), 1
    )


def test_flows_that_changed_and_the_number_of_the_others() -> None:
    flows = factories.analysis().flows
    lossy = msgspec.structs.replace(flows[1], recovered_packets=400)
    quiet = Diagnosis("", [], [], [])
    before = factories.analysis(diagnosis=quiet)
    after = factories.analysis(diagnosis=quiet, flows=[flows[0], lossy])
    text = printed_compare(before, after)
    assert "Neither analysis has a finding." in text
    assert "1 flow is unchanged." in text
    assert "lost 0 (0 %) → 400 (1.0 %)" in text
    assert "... 4 changed flows not shown (--top)" in printed_compare(before, after, top=1)
