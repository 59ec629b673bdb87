"""Screen 1 over real captures: findings, and the way to their evidence and packets."""

from __future__ import annotations

import re

import pytest
from captures import data
from tui_driver import drive, text_of

from rocescope.commands.replay.generate_mrc import generate_mrc

PAIR = [data(f"i01_write_loss0.5_AtoB.at{side}") for side in "AB"]
CLEAN = [data("c05_rc_atomic_fetchadd")]


@pytest.mark.thorough
def test_the_app_begins_with_the_diagnosis_at_80_columns():
    lines = drive(PAIR, [], (80, 24), text_of, start="diagnosis")
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
    row = next(line for line in lines if line.lstrip(" ▌▏")[:2] in ("! ", "· "))
    assert re.search(r" \d\.\d{6} ", row)
