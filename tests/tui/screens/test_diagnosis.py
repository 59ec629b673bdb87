"""The evidence of a finding: its interval, its victims, its packets."""

from __future__ import annotations

import re

import pytest
from captures import DATA, data
from tui_driver import drive, text_of

from rocescope.commands.generate import generate_mrc

# The evidence of a finding: its interval, its victims, its packets.

PAIR = [data(f"i01_write_loss0.5_AtoB.at{side}") for side in "AB"]


@pytest.mark.thorough
def test_interval_victims_and_the_way_to_packets():
    seen = []
    look = lambda app: seen.append((app.current_mode, text_of(app)))  # noqa: E731
    drive(PAIR, ["enter", look, "enter", look, "escape", look], (120, 40), start="diagnosis")
    (mode, lines), (then, _), (back, _) = seen
    assert (mode, then, back) == ("evidence", "packets", "evidence")
    assert any("├" in line for line in lines) and any("╵0" in line for line in lines)
    assert sum("10.0.0.1" in line and "10.0.0.2" in line for line in lines) >= 4


def test_without_a_finding_it_says_where_to_choose_one():
    lines = drive([data("c05_rc_atomic_fetchadd")], [], look=text_of, start="evidence")
    assert "Choose a finding on screen 1." in lines[2]


FABRIC = sorted((DATA / "whole_leafspine/r03_link_down_reroute").iterdir())
"""A link fails and flows take another way: of two of three queue pairs only ACKs are lost."""


def test_a_frame_of_one_tap_leads_to_the_packet_of_this_tap():
    """Every tap numbers its own frames: frame 1,726 of leaf2-spine2 is not that of another tap."""

    def look(app):
        screen = app.screen
        row = screen.query_one("#packets").cursor
        table = screen.packets.table
        return app.view.finding, int(table.time_ns[row]), int(table.frame_number[row])

    finding, time, frame = drive(FABRIC, ["enter", "tab", "enter"], look=look, start="diagnosis")
    first = finding.evidence[0]
    assert (time, frame) == (first.time_ns, first.frame_number)


@pytest.mark.thorough
def test_screens_of_a_flow_show_the_flow_under_the_cursor():
    """Not the flow that is selected on screen 2."""

    def look(app):
        one = app.view.finding.affected[1]
        key = app.view.session.selected
        return (key.src, key.dst, key.qp) == (one.src, one.dst, one.dest_qp), app.current_mode

    for key, mode in (("7", "packets"), ("6", "recovery"), ("5", "reorder")):
        keys = ["enter", "down", key]
        assert drive(FABRIC, keys, look=look, start="diagnosis") == (True, mode)


@pytest.mark.thorough
def test_numbers_of_victims_are_whole_on_80_columns():
    lines = drive(FABRIC, ["enter"], (80, 24), text_of, start="diagnosis")
    heading = next(line for line in lines if "SOURCE" in line)
    assert "PACKETS" in heading and "COST" in heading
    assert any("0x0000e0" in line and " 67 " in line and "181 ms" in line for line in lines)
    assert "3 queue pairs affected" in lines[2]


@pytest.mark.thorough
def test_flows_that_wait_for_lost_acks_have_a_state_and_moved_flows_do_not_spray():
    lines = drive(FABRIC, ["2"], (120, 40), text_of, start="diagnosis")
    assert sum("link-down" in line for line in lines) == 3
    assert "spray over several taps" not in " ".join(lines[2:4])


@pytest.mark.thorough
def test_packets_lost_between_taps_are_not_called_in_order_everywhere():
    """Packets are judged at the first tap, which saw all of them in order."""
    steps = ["enter", "down", "down", "enter"]
    lines = drive(FABRIC, steps, (120, 40), text_of, start="diagnosis")
    sentence = " ".join(" ".join(lines[2:4]).split())
    assert "0x0000e0: 0 of 462 packets are not in order at the first tap;" in sentence
    assert "67 of the flow lost between taps (3)." in sentence
    assert any(line.rstrip().endswith("copy at leaf2-spine2") for line in lines)
    assert any("never seen after leaf2-spine2" in line for line in lines)
    one = drive(PAIR[:1], ["7"], (120, 40), text_of, start="diagnosis")[2]
    assert "not in order" in one and "first tap" not in one and "between" not in one


# Screen 1 over real captures: findings, and the way to their evidence and packets.

DIAGNOSIS_PAIR = [data(f"i01_write_loss0.5_AtoB.at{side}") for side in "AB"]
CLEAN = [data("c05_rc_atomic_fetchadd")]


@pytest.mark.thorough
def test_the_app_begins_with_the_diagnosis_at_80_columns():
    lines = drive(DIAGNOSIS_PAIR, [], (80, 24), text_of, start="diagnosis")
    assert "1 Diag" in lines[1]
    assert any(line.lstrip(" ▌▏")[:2] in ("✗ ", "! ") for line in lines)
    assert any("next: " in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_clean_capture_says_what_was_checked():
    lines = drive(CLEAN, [], (100, 30), text_of, start="diagnosis")
    assert "No finding in " in lines[2] and "what was checked is below" in lines[2]
    assert any(line.startswith(" ✓ ") for line in lines)


@pytest.mark.thorough
def test_escape_leads_back_to_the_diagnosis():
    modes = []
    note = lambda app: modes.append(app.current_mode)  # noqa: E731
    drive(CLEAN, ["2", note, "escape", note, "7", note, "escape", note], start="diagnosis")
    assert modes == ["qps", "diagnosis", "packets", "diagnosis"]


def test_times_of_a_short_capture_have_microseconds(tmp_path):
    """A generated capture of 0.1 ms: 0.000 would tell nothing."""
    short = tmp_path / "short.pcap"
    generate_mrc(output=short, messages=1, loss=0.02)
    lines = drive([short], [], (120, 30), text_of, start="diagnosis")
    row = next(line for line in lines if line.lstrip(" ▌▏123456789")[:2] in ("! ", "· "))
    assert re.search(r" \d\.\d{6} ", row)
