"""The report of `discover`."""

from __future__ import annotations

import io

import msgspec
from answers import recorded

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.follow import FollowEvent, FollowSummary, Move
from rocescope.discovery.results import Discovery, Remark
from rocescope.report.terminal.discovery import FollowPrinter, fill_discovery
from rocescope.report.terminal.page import page_on

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
