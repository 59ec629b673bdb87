"""Header bits that tell swallowed flows from those that pass."""

from __future__ import annotations

import math
import random

import pytest
from cases import case_of
from fabric_captures import (
    MS,
    between,
    drop,
    flows_hit,
    names,
    severe,
    simulate,
    usual_pairs,
    wire_bytes,
)
from hypothesis import given
from hypothesis import strategies as st
from traffic import packets

from rocescope.analyzer.diagnosis.finders.hops.selective import (
    CHANCE,
    dscp_selection,
    seldom,
    selection,
    unlikely,
)

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
SPINE = (NEAR, FAR, "spine2", "leaf1 to leaf2")
FROM = 100 * MS


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("which", "says"),
    [
        (lambda packet: packet.sport & 4, "UDP source port bit 2 = 1"),
        (lambda packet: not packet.sport & 1 << 9, "UDP source port bit 9 = 0"),
        (lambda packet: packet.dest_qp & 2, "destination QP bit 1 = 1"),
    ],
)
def test_bits_that_a_spine_drops(tmp_path, which, says):
    pairs = usual_pairs(per_hosts=12, seed=3, gap=5 * MS)
    run = simulate(pairs, between(NEAR, FAR, drop, FROM, which=which))
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, run.hits)
    assert one.details["selection"] == says


@pytest.mark.parametrize("first", [0, FROM])
def test_packets_that_are_too_long(tmp_path, first):
    """The last packet of every message is short enough; before the fault long ones pass."""
    pairs = usual_pairs(tail_bytes=256)
    fault = between(NEAR, FAR, drop, first, which=lambda packet: wire_bytes(packet) > 700)
    run = simulate(pairs, fault)
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, run.hits)
    assert one.details == {"longest_passed_bytes": 54 + 12 + 256 - 8}


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, FROM])
def test_flows_that_are_too_long(tmp_path, first):
    """Every packet of some flows is too long: they are no blackhole."""
    pairs = usual_pairs(per_hosts=6)
    for pair in (pair for n, pair in enumerate(pairs) if n // 4 % 2):
        pair.payload_bytes = pair.tail_bytes = 256
    fault = between(NEAR, FAR, drop, first, 350 * MS, which=lambda packet: wire_bytes(packet) > 700)
    run = simulate(pairs, fault)
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss", SPINE, run.hits)
    assert one.details == {"longest_passed_bytes": 54 + 12 + 16 + 256 - 8}


@pytest.mark.parametrize("others", [16, 6])
def test_two_flows_that_are_too_long(tmp_path, others):
    """Among many flows two are the longest by chance once in a hundred times; among few often."""
    pairs = usual_pairs(hosts=[(1, 3)], per_hosts=others + 2)
    long = {pair.number for pair in pairs[4:6]}
    for pair in pairs:
        if pair.number not in long:
            pair.payload_bytes = pair.tail_bytes = 256
    fault = between(NEAR, FAR, drop, which=lambda packet: wire_bytes(packet) > 700)
    run = simulate(pairs, fault, route=lambda packet, now: 2)
    (one,) = severe(tmp_path, run)
    names(one, "selective-loss" if others == 16 else "blackhole", SPINE, run.hits)
    assert {flow[2] for flow in flows_hit(run.hits)} == long
    assert one.details == {"longest_passed_bytes": 54 + 12 + 16 + 256 - 8}
    assert others == 16 or "perhaps because of their length" in one.sentence


def test_two_flows_that_are_no_longer_than_others(tmp_path):
    """One long flow passes: the length is no reason."""
    pairs = usual_pairs(hosts=[(1, 3)], per_hosts=12)
    for pair in pairs[:9]:
        pair.payload_bytes = pair.tail_bytes = 256
    hit = {pair.number for pair in pairs[9:11]}
    fault = between(NEAR, FAR, drop, which=lambda packet: packet.dest_qp in hit)
    (one,) = severe(tmp_path, simulate(pairs, fault, route=lambda packet, now: 2))
    assert (one.kind, one.details) == ("blackhole", {})


def case(ports, qps, dscps):
    """One packet per flow; the same flow number as its place."""
    columns = zip(ports, qps, dscps, strict=True)
    rows = [
        {"psn": 1, "udp_sport": port, "dest_qp": qp, "traffic_class": dscp << 2}
        for port, qp, dscp in columns
    ]
    return case_of(table=packets(rows))


@given(
    field=st.sampled_from(["UDP source port", "destination QP", "DSCP"]),
    bit=st.integers(0, 5),
    flows=st.lists(st.booleans(), min_size=24, max_size=40),
    seed=st.integers(0, 1 << 20),
)
def test_one_bit_of_any_field(field, bit, flows, seed):
    """Either the bit that decides is named, or nothing: few flows of one kind prove no rule."""
    chance = random.Random(seed)

    def values(name, bits):
        drawn = [chance.randrange(1 << bits) for _ in flows]
        if name != field:
            return drawn
        return [v & ~(1 << bit) | hit << bit for v, hit in zip(drawn, flows, strict=True)]

    ports = [value | 0xC000 for value in values("UDP source port", 14)]
    qps = [n << 10 | v for n, v in enumerate(values("destination QP", 10))]
    made = case(ports, qps, values("DSCP", 6))
    swallowed = {n for n, hit in enumerate(flows) if hit}
    others = set(range(len(flows))) - swallowed
    found = selection(made, swallowed, others)
    if min(len(swallowed), len(others)) < 3:
        assert found is None
    else:
        assert found == f"{field} bit {bit} = 1"


def test_one_dscp():
    dscps = [26] * 5 + [0] * 5 + [48] * 2
    made = case([49152 + 7 * n for n in range(12)], range(12), dscps)
    hit = set(range(5))
    assert dscp_selection(made, hit, set(range(5, 12))) == "DSCP 26"
    assert dscp_selection(made, {5, 6, 7}, set(range(5)) | set(range(8, 12))) is None
    assert dscp_selection(made, hit | {5}, set(range(6, 12))) is None
    assert dscp_selection(made, {0, 1, 2}, {5, 6, 7}) is None  # chance: one draw of 20


def test_few_flows_prove_no_rule():
    made = case([49152 + n for n in range(12)], range(12), [26] * 12)
    odd = {n for n in range(12) if n & 1}
    assert selection(made, odd, set(range(12)) - odd) is None


def test_two_bits():
    numbers = range(64)
    made = case([49152 + n for n in numbers], numbers, [26] * 64)
    hit = {n for n in numbers if n & 3 == 1}
    assert selection(made, hit, set(numbers) - hit) == "UDP source port bit 0 = 1, bit 1 = 0"


def test_flows_without_a_common_bit():
    """A parity of three bits is no rule of two."""
    numbers = range(64)
    made = case([49152 + n for n in numbers], numbers, [n & 63 for n in numbers])
    hit = {n for n in numbers if (n & 7).bit_count() & 1}
    assert selection(made, hit, set(numbers) - hit) is None


def test_flows_with_several_ports_are_told_by_other_fields():
    """A flow that changes its port has none of its own."""
    numbers = range(30)
    rows = [
        {"psn": psn, "udp_sport": 50000 + (n & 1) + 2 * psn, "dest_qp": n, "traffic_class": 104}
        for n in numbers
        for psn in (0, 1)
    ]
    made = case_of(table=packets(rows))
    odd = {n for n in numbers if n & 1}
    assert selection(made, odd, set(numbers) - odd) == "destination QP bit 0 = 1"


@given(st.integers(0, 20), st.integers(1, 20), st.floats(0.001, 1), st.integers(0, 60))
def test_flows_that_random_loss_seldom_hits(others, hit, share, packets):
    chance = math.comb(others + hit, hit) * share**packets
    if not math.isclose(chance, CHANCE, rel_tol=1e-9):
        assert seldom(others, hit, share, packets) == (chance < CHANCE)


def test_more_ways_to_choose_flows_than_a_float_holds():
    assert not seldom(650, 650, 0.1, 300)
    assert seldom(650, 650, 0.1, 500)
    assert unlikely(set(range(650)), set(range(650, 1300)), tried=64)
