"""ESA's assumed rules: preemption by priority, ageing, early release."""

from __future__ import annotations

import pytest
from aggregating import memory, packet

from rocescope.replay.aggregation.memory import ABSORB, FORWARD
from rocescope.replay.aggregation.schemes.esa import at_switch, esa

WHOLE = 0b11
AGEING, EARLY = (1, 0), (1, 1)


@pytest.mark.thorough
def test_a_higher_priority_takes_the_slot():
    held = memory(own=AGEING)
    at_switch(held, packet(0, 5, job=0, priority=10), 0, 0, WHOLE, 0)
    winner = packet(0, 7, job=1, priority=11)
    assert at_switch(held, winner, 0, 0, WHOLE, 0) == FORWARD
    assert winner["job"][0] == 0 and winner["value"][0] == 5
    assert held.cells["value"][0] == 7 and held.tally["preemptions"][1] == 1


def test_failed_preemptions_age_the_resident_until_it_loses():
    held = memory(own=AGEING)
    at_switch(held, packet(0, 5, job=0, priority=40), 0, 0, WHOLE, 0)
    for left in (20, 10):
        at_switch(held, packet(0, 7, job=1, priority=15), 0, 0, WHOLE, 0)
        assert held.cells["priority"][0] == left
    at_switch(held, packet(0, 7, job=1, priority=15), 0, 0, WHOLE, 0)
    assert held.tally["preemptions"][1] == 1
    stays = memory(own=(0, 0))
    at_switch(stays, packet(0, 5, job=0, priority=40), 0, 0, WHOLE, 0)
    at_switch(stays, packet(0, 7, job=1, priority=15), 0, 0, WHOLE, 0)
    assert stays.cells["priority"][0] == 40


def test_a_complete_sum_that_waits_for_its_result_is_not_preempted():
    held = memory(own=AGEING)
    at_switch(held, packet(0, 5), 0, 0, WHOLE, 0)
    at_switch(held, packet(1, 6), 0, 0, WHOLE, 0)
    assert at_switch(held, packet(0, 7, job=1, priority=255), 0, 0, WHOLE, 0) == FORWARD
    assert held.cells["value"][0] == 11


def test_release_at_completion_frees_the_slot_at_once():
    held = memory(own=EARLY)
    assert at_switch(held, packet(0, 5), 0, 0, WHOLE, 0) == ABSORB
    assert at_switch(held, packet(1, 6), 0, 0, WHOLE, 9) == FORWARD
    assert held.cells["owner"][0] == 0
    assert esa({"release": "completion"}).conduct.params == EARLY
