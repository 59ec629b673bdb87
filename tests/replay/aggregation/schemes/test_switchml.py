"""SwitchML's rules: two versions of a slot, repeated contributions, results from the switch."""

from __future__ import annotations

from aggregating import memory, packet

from rocescope.replay.aggregation.columns import cl, pk, ty
from rocescope.replay.aggregation.memory import ABSORB, MULTICAST, REPLY
from rocescope.replay.aggregation.schemes.switchml import SwitchMl, at_switch

WHOLE = 0b11


def at(held, worker, value, seq, index):
    sent = packet(worker, value, seq=seq, index=index)
    return at_switch(held, sent, 0, 0, WHOLE, 0), int(sent[0, pk.VALUE])


def test_the_last_worker_makes_the_switch_send_the_result():
    held = memory()
    assert at(held, 0, 5, 0, 0)[0] == ABSORB
    assert at(held, 1, 6, 0, 0) == (MULTICAST, 11)


def test_a_repeated_contribution_is_ignored_until_the_sum_is_complete():
    held = memory()
    at(held, 0, 5, 0, 0)
    assert at(held, 0, 5, 0, 0)[0] == ABSORB
    assert held.cells[0, cl.VALUE] == 5
    at(held, 1, 6, 0, 0)
    assert at(held, 0, 5, 0, 0) == (REPLY, 11)


def test_the_shadow_copy_answers_while_the_other_version_fills():
    held = memory()
    at(held, 0, 5, 0, 0)
    at(held, 1, 6, 0, 0)
    assert at(held, 0, 8, 1, 2)[0] == ABSORB  # the next chunk, in the other version
    assert at(held, 1, 6, 0, 0) == (REPLY, 11)  # the other worker lost the result


def test_a_packet_of_an_old_chunk_is_not_added_to_the_next():
    held = memory()
    at(held, 0, 5, 0, 0)
    at(held, 1, 6, 0, 0)
    at(held, 0, 9, 2, 0)
    assert at(held, 1, 6, 0, 0)[0] == ABSORB
    assert held.cells[0, cl.VALUE] == 9 and held.tally[0, ty.STALE] == 1


def test_it_needs_no_server():
    conduct = SwitchMl({"rto": "5ms"}).conduct()
    assert not conduct.has_server and conduct.trigger == 0
