"""Marks of flows."""

from __future__ import annotations

from rocescope.tui.session.marks import Marks
from rocescope.tui.session.snapshots.snapshot import FlowKey


def test_a_second_press_takes_the_mark_away():
    marks, key = Marks(), FlowKey("10.0.0.1", "10.0.0.2", 17)
    assert marks.toggle(key) and marks.flows == {key: ""}
    marks.flows[key] = "slow"
    assert marks.toggle(FlowKey("10.0.0.1", "10.0.0.2", 18))
    assert not marks.toggle(key) and len(marks.flows) == 1
    assert Marks().flows == {}
