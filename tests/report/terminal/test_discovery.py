"""The report of `discover`."""

from __future__ import annotations

import io

from answers import recorded

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.results import Discovery, Remark
from rocescope.report.terminal.discovery import fill_discovery
from rocescope.report.terminal.page import page_on


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
