"""The evidence of a finding: its interval, its victims, its packets."""

from __future__ import annotations

from captures import data
from tui_driver import drive, text_of

PAIR = [data(f"i01_write_loss0.5_AtoB.at{side}") for side in "AB"]


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
