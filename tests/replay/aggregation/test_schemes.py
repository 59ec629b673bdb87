"""The aggregation schemes and their options.

What every scheme says of itself.

Options of schemes: defaults, names, mistakes in one line.

Schemes by name.

SwitchML's rules: two versions of a slot, repeated contributions, results from the switch.

ATP's rules at a switch (NSDI 2021 and its released code).

ESA's assumed rules: preemption by priority, ageing, early release.

A2TP's rules at a switch (EuroSys 2023, its released code).

Unlimited memory: no fragment collides, however many jobs there are.

Without aggregation every gradient continues.
"""

from __future__ import annotations

import pytest
from aggregating import memory, packet, small_jobs
from hypothesis import given
from hypothesis import strategies as some

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation.request import SCHEMES, parse_schemes
from rocescope.replay.aggregation.run import Conditions, simulate
from rocescope.replay.aggregation.schemes import (
    Options,
    a2tp,
    a2tp_at_switch,
    atp,
    atp_at_switch,
    esa,
    esa_at_switch,
    ideal,
    no_aggregation,
    none_at_switch,
    switchml,
    switchml_at_switch,
)
from rocescope.replay.aggregation.state import COLLIDED, CONTENDED, RESENT, TWO_WINDOWS
from rocescope.replay.aggregation.switches import ABSORB, FORWARD, MULTICAST, REPLY


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_names_all_its_options_and_has_timers(name):
    scheme = SCHEMES[name]({})
    conduct = scheme.conduct
    assert scheme.name == name and "rto" in scheme.parameters
    assert 0 < conduct.rto_ps <= conduct.first_rto_ps


DEFAULTS = {"rto": "1ms", "cc": "no", "by": "a", "n": "3"}


def test_values_are_the_defaults_or_those_given():
    options = Options("x", {"rto": "2us", "cc": "no"}, DEFAULTS)
    assert options.name == "x:rto=2us"
    assert options.ps("rto") == 2_000_000 and not options.on("cc")
    assert options.one_of("by", "a", "b") == "a" and options.number("n", 0, 9) == 3
    assert Options("x", {"rto": "off"}, DEFAULTS).ps("rto") == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"what": "1"}, "no option 'what'; it has rto, cc, by, n"),
        ({"rto": "soon"}, "scheme x: rto"),
        ({"cc": "maybe"}, "yes or no"),
        ({"by": "c"}, "a or b"),
        ({"n": "10"}, "0 to 9"),
        ({"n": "9" * 5000}, "0 to 9"),
    ],
)
def test_mistakes(given, said):
    with pytest.raises(UsageError, match=said):
        options = Options("x", given, DEFAULTS)
        options.ps("rto"), options.on("cc"), options.one_of("by", "a", "b")
        options.number("n", 0, 9)


def test_all_without_a_name_and_those_named():
    assert [one.name for one in parse_schemes([])] == [*SCHEMES, "ring", "tree"]
    assert [one.name for one in parse_schemes(["atp", "atp:cc=yes"])] == ["atp", "atp:cc=yes"]


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["sharp"], "no scheme 'sharp'; there are switchml"),
        (["atp", "atp:rto=200us"], "given twice"),
        (["esa:x"], "not key=value"),
    ],
)
def test_mistakes_of_registry(specs, said):
    with pytest.raises(UsageError, match=said):
        parse_schemes(specs)


WHOLE = 0b11


def at(held, worker, value, seq, index, whole=WHOLE):
    sent = packet(worker, value, seq=seq, index=index)
    return switchml_at_switch(held, sent, 0, 0, whole, 0), int(sent["value"][0])


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


WHOLE_ATP = 0b11


def test_the_first_gradient_claims_an_empty_slot():
    held = memory()
    assert atp_at_switch(held, packet(0, 5, index=3), 0, 0, WHOLE_ATP, 9) == ABSORB
    assert held.cells["owner"][3] and held.cells["since"][3] == 9


def test_another_fragment_collides_and_goes_on_unaggregated():
    held = memory()
    atp_at_switch(held, packet(0, 5, job=0), 0, 0, WHOLE_ATP, 0)
    other = packet(0, 7, job=1)
    assert atp_at_switch(held, other, 0, 0, WHOLE_ATP, 0) == FORWARD
    assert other["kind"][0] & COLLIDED and other["value"][0] == 7
    assert held.cells["value"][0] == 5 and held.tally["collisions"][1] == 1


def test_a_retransmission_flushes_its_slot():
    held = memory()
    atp_at_switch(held, packet(0, 5), 0, 0, 0b111, 0)
    again = packet(1, 6, flags=RESENT)
    assert atp_at_switch(held, again, 0, 0, 0b111, 0) == FORWARD
    assert again["bits"][0] == 0b11 and again["value"][0] == 11
    assert held.cells["owner"][0] == 0


def test_a_retransmission_starts_no_aggregation_and_leaves_others_alone():
    held = memory()
    assert atp_at_switch(held, packet(flags=RESENT), 0, 0, WHOLE_ATP, 0) == FORWARD
    assert held.cells["owner"][0] == 0
    atp_at_switch(held, packet(0, 5, job=1), 0, 0, WHOLE_ATP, 0)
    assert atp_at_switch(held, packet(flags=RESENT), 0, 0, WHOLE_ATP, 0) == FORWARD
    assert held.cells["value"][0] == 5


def test_options():
    conduct = atp({"rto": "50us", "cc": "yes"}).conduct
    assert conduct.rto_ps == 50_000_000 and conduct.congestion and conduct.rehash
    assert atp({"rto": "200us"}).name == "atp" and atp({"cc": "yes"}).name == "atp:cc=yes"


WHOLE_ESA = 0b11
AGEING, EARLY = (1, 0), (1, 1)


@pytest.mark.thorough
def test_a_higher_priority_takes_the_slot():
    held = memory(own=AGEING)
    esa_at_switch(held, packet(0, 5, job=0, priority=10), 0, 0, WHOLE_ESA, 0)
    winner = packet(0, 7, job=1, priority=11)
    assert esa_at_switch(held, winner, 0, 0, WHOLE_ESA, 0) == FORWARD
    assert winner["job"][0] == 0 and winner["value"][0] == 5
    assert held.cells["value"][0] == 7 and held.tally["preemptions"][1] == 1


def test_failed_preemptions_age_the_resident_until_it_loses():
    held = memory(own=AGEING)
    esa_at_switch(held, packet(0, 5, job=0, priority=40), 0, 0, WHOLE_ESA, 0)
    for left in (20, 10):
        esa_at_switch(held, packet(0, 7, job=1, priority=15), 0, 0, WHOLE_ESA, 0)
        assert held.cells["priority"][0] == left
    esa_at_switch(held, packet(0, 7, job=1, priority=15), 0, 0, WHOLE_ESA, 0)
    assert held.tally["preemptions"][1] == 1
    stays = memory(own=(0, 0))
    esa_at_switch(stays, packet(0, 5, job=0, priority=40), 0, 0, WHOLE_ESA, 0)
    esa_at_switch(stays, packet(0, 7, job=1, priority=15), 0, 0, WHOLE_ESA, 0)
    assert stays.cells["priority"][0] == 40


def test_a_complete_sum_that_waits_for_its_result_is_not_preempted():
    held = memory(own=AGEING)
    esa_at_switch(held, packet(0, 5), 0, 0, WHOLE_ESA, 0)
    esa_at_switch(held, packet(1, 6), 0, 0, WHOLE_ESA, 0)
    assert esa_at_switch(held, packet(0, 7, job=1, priority=255), 0, 0, WHOLE_ESA, 0) == FORWARD
    assert held.cells["value"][0] == 11


def test_release_at_completion_frees_the_slot_at_once():
    held = memory(own=EARLY)
    assert esa_at_switch(held, packet(0, 5), 0, 0, WHOLE_ESA, 0) == ABSORB
    assert esa_at_switch(held, packet(1, 6), 0, 0, WHOLE_ESA, 9) == FORWARD
    assert held.cells["owner"][0] == 0
    assert esa({"release": "completion"}).conduct.params == EARLY


WHOLE_A2TP = 0b11


@pytest.mark.thorough
def test_a_slot_that_another_fragment_wanted_says_so_with_its_sum():
    held = memory()
    a2tp_at_switch(held, packet(0, 5), 0, 0, WHOLE_A2TP, 0)
    other = packet(0, 7, job=1)
    assert a2tp_at_switch(held, other, 0, 0, WHOLE_A2TP, 0) == FORWARD
    assert other["kind"][0] & COLLIDED and not other["kind"][0] & CONTENDED
    last = packet(1, 6)
    assert a2tp_at_switch(held, last, 0, 0, WHOLE_A2TP, 0) == FORWARD
    assert last["value"][0] == 11 and last["kind"][0] & CONTENDED
    assert held.tally["collisions"][1] == 1


def test_without_a_collision_a_sum_says_nothing():
    held = memory()
    a2tp_at_switch(held, packet(0, 5), 0, 0, WHOLE_A2TP, 0)
    last = packet(1, 6)
    assert (
        a2tp_at_switch(held, last, 0, 0, WHOLE_A2TP, 0) == FORWARD
        and not last["kind"][0] & CONTENDED
    )


def test_a_gradient_past_the_memory_takes_the_sum_of_its_slot_along_and_claims_none():
    held = memory()
    beyond = packet(0, 5, flags=RESENT)
    assert a2tp_at_switch(held, beyond, 0, 0, 0b111, 0) == FORWARD and not held.cells["owner"].any()
    assert a2tp_at_switch(held, packet(0, 5), 0, 0, 0b111, 0) == ABSORB
    beyond = packet(1, 6, flags=RESENT)
    assert a2tp_at_switch(held, beyond, 0, 0, 0b111, 0) == FORWARD
    assert beyond["bits"][0] == 0b11 and beyond["value"][0] == 11
    assert held.cells["owner"][0] == 0


def test_the_next_owner_of_a_slot_begins_without_contention():
    held = memory()
    a2tp_at_switch(held, packet(0, 5), 0, 0, 0b111, 0)
    a2tp_at_switch(held, packet(0, 7, job=1), 0, 0, WHOLE_A2TP, 0)
    flushing = packet(1, 6, flags=RESENT)
    a2tp_at_switch(held, flushing, 0, 0, 0b111, 0)
    assert flushing["kind"][0] & CONTENDED
    a2tp_at_switch(held, packet(0, 7, job=1), 0, 0, WHOLE_A2TP, 0)
    assert held.cells["marked"][0] == 0


def test_options_of_a2tp():
    conduct = a2tp({"base-rtt": "8us", "contention": "5"}).conduct
    assert conduct.congestion == TWO_WINDOWS and conduct.base_rtt_ps == 8_000_000
    assert conduct.contention_percent == 5 and conduct.rehash == COLLIDED | RESENT
    other = a2tp({"rehash": "no", "aggregators": "7"}).conduct
    assert other.rehash == 0 and other.aggregators == 7


def test_no_gradient_collides_and_every_sum_is_complete_in_the_switch():
    jobs, fabric = small_jobs("count=3,workers=3,fragments=40,window=8,iterations=2")
    found = simulate(ideal({}), jobs, fabric, Conditions(slots=1))
    assert not found.tally["collisions"].any()
    assert (found.tally["whole"] == 80).all()


def test_losses_cost_no_more_time_than_with_limited_memory():
    jobs, fabric = small_jobs("count=3,workers=3,fragments=400,window=32,iterations=2")
    lossy = Conditions(slots=96, loss=0.01)
    ends = [
        simulate(scheme, jobs, fabric, lossy).finished_ps.max() for scheme in (ideal({}), atp({}))
    ]
    assert 0 < ends[0] <= ends[1]


def test_gradients_pass_the_switch_unchanged():
    held, sent = memory(), packet(0, 5)
    assert none_at_switch(held, sent, 0, 0, 0b11, 0) == FORWARD
    assert not held.cells["owner"].any() and (sent == packet(0, 5)).all()
    conduct = no_aggregation({}).conduct
    assert conduct.rto_ps == atp({}).conduct.rto_ps  # a loss costs both the same time
    assert not conduct.aggregates and not conduct.multicast
