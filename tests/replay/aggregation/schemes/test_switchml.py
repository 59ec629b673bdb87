"""SwitchML's rules: two versions of a slot, repeated contributions, results from the switch."""

from __future__ import annotations

from aggregating import memory, packet
from hypothesis import given
from hypothesis import strategies as some

from rocescope.replay.aggregation.memory import ABSORB, MULTICAST, REPLY
from rocescope.replay.aggregation.schemes.switchml import at_switch, switchml

WHOLE = 0b11


def at(held, worker, value, seq, index, whole=WHOLE):
    sent = packet(worker, value, seq=seq, index=index)
    return at_switch(held, sent, 0, 0, whole, 0), int(sent["value"][0])


class Released:
    """A slot by the released code: two versions, each with its sum, count and seen bits."""

    def __init__(self, workers):
        self.workers = workers
        self.sums, self.counts, self.seen = [0, 0], [0, 0], [set(), set()]

    def arrive(self, worker, value, version):
        self.seen[1 - version].discard(worker)
        if worker in self.seen[version]:
            return (ABSORB if self.counts[version] else REPLY), self.sums[version]
        self.seen[version].add(worker)
        self.sums[version] = value + (self.sums[version] if self.counts[version] else 0)
        self.counts[version] = (self.counts[version] + 1) % self.workers
        return (ABSORB if self.counts[version] else MULTICAST), self.sums[version]


def test_the_last_worker_makes_the_switch_send_the_result():
    held = memory()
    assert at(held, 0, 5, 0, 0)[0] == ABSORB
    assert at(held, 1, 6, 0, 0) == (MULTICAST, 11)


def test_a_repeated_contribution_is_ignored_until_the_sum_is_complete():
    held = memory()
    at(held, 0, 5, 0, 0)
    assert at(held, 0, 5, 0, 0)[0] == ABSORB
    assert held.cells["value"][0] == 5
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
    assert held.cells["value"][0] == 9 and held.tally["stale"][0] == 1


@given(some.lists(some.tuples(some.integers(0, 2), some.integers(0, 7)), max_size=60))
def test_a_slot_does_as_the_released_code_whatever_is_lost_and_repeated(steps):
    # The network loses packets and keeps their order: each step is a packet of a worker for its
    # current chunk, and the workers of a mask get what the switch then sends.
    held, released, chunks = memory(), Released(3), [0, 0, 0]
    for worker, hears in steps:
        chunk = chunks[worker]
        value, version = 10 * chunk + worker, chunk % 2
        fate, total = at(held, worker, value, chunk, 2 * version, 0b111)
        expected, right = released.arrive(worker, value, version)
        assert fate == expected
        if fate != ABSORB:
            assert total == right == 30 * chunk + 3
            for other in range(3) if fate == MULTICAST else (worker,):
                chunks[other] += hears >> other & 1 and chunks[other] == chunk
    assert max(chunks) - min(chunks) <= 1  # nobody is more than one chunk ahead


def test_it_needs_no_server():
    conduct = switchml({"rto": "5ms"}).conduct
    assert not conduct.has_server and conduct.trigger == 0
