"""The report of `discover`."""

from __future__ import annotations

import io

from answers import recorded

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.results import Discovery, Remark
from rocescope.report.terminal.discovery import print_discovery


def printed(report: Discovery) -> str:
    stream = io.StringIO()
    print_discovery(report, stream, "never")
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
