"""Bars with their shares."""

from __future__ import annotations

from rocescope.tui.widgets.bars import Bar, bar_lines


def test_bars_and_shares():
    text = bar_lines("EXTENT", [Bar("1", 75), Bar("2 to 3", 25, "p99")], 40, 9, "in packets").plain
    lines = text.splitlines()
    assert lines[0] == "EXTENT" and lines[3] == " in packets"
    assert lines[1].startswith("      1 █") and lines[1].rstrip().endswith("75.0 %")
    assert lines[2].startswith(" 2 to 3 █") and "25.0 % p99" in lines[2]
    assert lines[1].count("█") >= 3 * lines[2].count("█")
    assert all(len(line.rstrip()) <= 40 for line in lines)


def test_no_bar_and_too_many():
    assert "no values" in bar_lines("EXTENT", [], 40, 9).plain
    assert bar_lines("EXTENT", [Bar("1", 0)] * 5, 40, 3).plain.endswith(" and 2 more\n")
