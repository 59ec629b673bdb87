"""ATP's rules at a switch (NSDI 2021 and its released code)."""

from __future__ import annotations

from aggregating import memory, packet

from rocescope.replay.aggregation.columns import COLLIDED, RESENT
from rocescope.replay.aggregation.memory import ABSORB, FORWARD
from rocescope.replay.aggregation.schemes.atp import at_switch, atp

WHOLE = 0b11


def test_the_first_gradient_claims_an_empty_slot():
    held = memory()
    assert at_switch(held, packet(0, 5, index=3), 0, 0, WHOLE, 9) == ABSORB
    assert held.cells["owner"][3] and held.cells["since"][3] == 9


def test_another_fragment_collides_and_goes_on_unaggregated():
    held = memory()
    at_switch(held, packet(0, 5, job=0), 0, 0, WHOLE, 0)
    other = packet(0, 7, job=1)
    assert at_switch(held, other, 0, 0, WHOLE, 0) == FORWARD
    assert other["kind"][0] & COLLIDED and other["value"][0] == 7
    assert held.cells["value"][0] == 5 and held.tally["collisions"][1] == 1


def test_a_retransmission_flushes_its_slot():
    held = memory()
    at_switch(held, packet(0, 5), 0, 0, 0b111, 0)
    again = packet(1, 6, flags=RESENT)
    assert at_switch(held, again, 0, 0, 0b111, 0) == FORWARD
    assert again["bits"][0] == 0b11 and again["value"][0] == 11
    assert held.cells["owner"][0] == 0


def test_a_retransmission_starts_no_aggregation_and_leaves_others_alone():
    held = memory()
    assert at_switch(held, packet(flags=RESENT), 0, 0, WHOLE, 0) == FORWARD
    assert held.cells["owner"][0] == 0
    at_switch(held, packet(0, 5, job=1), 0, 0, WHOLE, 0)
    assert at_switch(held, packet(flags=RESENT), 0, 0, WHOLE, 0) == FORWARD
    assert held.cells["value"][0] == 5


def test_options():
    conduct = atp({"rto": "50us", "cc": "yes"}).conduct
    assert conduct.rto_ps == 50_000_000 and conduct.congestion and conduct.rehash
    assert atp({"rto": "200us"}).name == "atp" and atp({"cc": "yes"}).name == "atp:cc=yes"
