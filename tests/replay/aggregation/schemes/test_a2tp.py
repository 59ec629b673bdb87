"""A2TP's rules at a switch (EuroSys 2023, its released code)."""

from __future__ import annotations

import pytest
from aggregating import memory, packet

from rocescope.replay.aggregation.columns import COLLIDED, CONTENDED, RESENT
from rocescope.replay.aggregation.memory import ABSORB, FORWARD
from rocescope.replay.aggregation.schemes.a2tp import a2tp, at_switch
from rocescope.replay.aggregation.state import TWO_WINDOWS

WHOLE = 0b11


@pytest.mark.thorough
def test_a_slot_that_another_fragment_wanted_says_so_with_its_sum():
    held = memory()
    at_switch(held, packet(0, 5), 0, 0, WHOLE, 0)
    other = packet(0, 7, job=1)
    assert at_switch(held, other, 0, 0, WHOLE, 0) == FORWARD
    assert other["kind"][0] & COLLIDED and not other["kind"][0] & CONTENDED
    last = packet(1, 6)
    assert at_switch(held, last, 0, 0, WHOLE, 0) == FORWARD
    assert last["value"][0] == 11 and last["kind"][0] & CONTENDED
    assert held.tally["collisions"][1] == 1


def test_without_a_collision_a_sum_says_nothing():
    held = memory()
    at_switch(held, packet(0, 5), 0, 0, WHOLE, 0)
    last = packet(1, 6)
    assert at_switch(held, last, 0, 0, WHOLE, 0) == FORWARD and not last["kind"][0] & CONTENDED


def test_a_gradient_past_the_memory_takes_the_sum_of_its_slot_along_and_claims_none():
    held = memory()
    beyond = packet(0, 5, flags=RESENT)
    assert at_switch(held, beyond, 0, 0, 0b111, 0) == FORWARD and not held.cells.any()
    assert at_switch(held, packet(0, 5), 0, 0, 0b111, 0) == ABSORB
    beyond = packet(1, 6, flags=RESENT)
    assert at_switch(held, beyond, 0, 0, 0b111, 0) == FORWARD
    assert beyond["bits"][0] == 0b11 and beyond["value"][0] == 11
    assert held.cells["owner"][0] == 0


def test_the_next_owner_of_a_slot_begins_without_contention():
    held = memory()
    at_switch(held, packet(0, 5), 0, 0, 0b111, 0)
    at_switch(held, packet(0, 7, job=1), 0, 0, WHOLE, 0)
    flushing = packet(1, 6, flags=RESENT)
    at_switch(held, flushing, 0, 0, 0b111, 0)
    assert flushing["kind"][0] & CONTENDED
    at_switch(held, packet(0, 7, job=1), 0, 0, WHOLE, 0)
    assert held.cells["marked"][0] == 0


def test_options():
    conduct = a2tp({"base-rtt": "8us", "contention": "5"}).conduct
    assert conduct.congestion == TWO_WINDOWS and conduct.base_rtt_ps == 8_000_000
    assert conduct.contention_percent == 5 and conduct.rehash == COLLIDED | RESENT
    other = a2tp({"rehash": "no", "aggregators": "7"}).conduct
    assert other.rehash == 0 and other.aggregators == 7
