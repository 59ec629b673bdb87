"""Chunks that go round a ring of all hosts."""

from __future__ import annotations

from pattern_settings import made

from rocescope.replay.generate.patterns.ring_allreduce import ring_allreduce


def test_ring_allreduce_moves_two_n_minus_one_chunks_to_the_next():
    demand = made(ring_allreduce, hosts=8, message_bytes=8000, messages=2)
    assert demand.dst.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    assert set(demand.messages.tolist()) == {2 * 2 * 7}
    assert set(demand.message_bytes.tolist()) == {1000}
    assert demand.in_turn
