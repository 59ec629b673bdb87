"""Key columns and the bytes a hash reads, against bytes that scapy wrote."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

from rocescope.analyzer.errors import UsageError
from rocescope.replay.hashing.keys import (
    FIELD_SETS,
    addresses,
    fields_matrix,
    packet_keys,
    parse_field_set,
    symmetric,
)
from rocescope.replay.hashing.reduction import choose_by_unit, choose_one_group, pack_groups
from rocescope.replay.hashing.settings import Group, HashSettings, equal_cost

# Key columns and the bytes a hash reads, against bytes that scapy wrote.

KEYS = packet_keys(
    ["10.1.2.3", "fd00::1", "10.1.2.4"],
    ["10.9.8.7", "fd00::2", "10.0.0.1"],
    [49152, 50000, 5000],
    flow_label=[0, 0xABCDE, 0],
    dest_qp=[0x123456, 0xFFFFFF, 1],
)
PACKET4 = bytes(IP(src="10.1.2.3", dst="10.9.8.7") / UDP(sport=49152, dport=4791))
PACKET6 = bytes(IPv6(src="fd00::1", dst="fd00::2", fl=0xABCDE) / UDP(sport=50000, dport=4791))


def row(keys, field_set, number, **options):
    data, lengths = fields_matrix(keys, field_set, **options)
    assert not data[number, lengths[number] :].any()
    return data[number, : lengths[number]].tobytes()


def test_five_tuple_is_what_lies_in_the_packet():
    assert row(KEYS, "5-tuple", 0) == PACKET4[12:20] + PACKET4[9:10] + PACKET4[20:24]
    assert row(KEYS, "5-tuple", 1) == PACKET6[8:40] + PACKET6[6:7] + PACKET6[40:44]


def test_rss_order_and_three_tuple():
    assert row(KEYS, "4-tuple", 0) == PACKET4[12:24]
    assert row(KEYS, "3-tuple", 1) == PACKET6[8:40] + PACKET6[6:7]


def test_added_fields_are_big_endian():
    five = row(KEYS, "5-tuple", 1)
    assert row(KEYS, "5-tuple+flow-label", 1) == five + b"\x0a\xbc\xde"
    assert row(KEYS, "5-tuple+qpn", 1) == five + b"\xff\xff\xff"
    assert row(KEYS, "5-tuple+ingress", 1, ingress_port=0x102) == five + b"\x01\x02"
    assert row(KEYS, "5-tuple,ingress", 2, ingress_port=[7, 8, 9])[-2:] == b"\0\x09"


def test_user_defined_bytes_name_the_queue_pair():
    """Meta's E-ECMP: three bytes at offset 13 of UDP."""
    assert row(KEYS, "5-tuple+udp[13:3]", 0) == row(KEYS, "5-tuple+qpn", 0)
    assert row(KEYS, "udp[0:4]", 0) == PACKET4[20:24]
    assert row(KEYS, "udp[14:1]", 0) == b"\x34"


@pytest.mark.parametrize("text", ["", "6-tuple", "5-tuple+", "udp[8:1]", "udp[13:4]", "udp[13:0]"])
def test_unknown_fields_are_named(text):
    with pytest.raises(UsageError):
        parse_field_set(text)


def test_ingress_port_must_be_known():
    with pytest.raises(UsageError, match="ingress port"):
        fields_matrix(KEYS, "5-tuple+ingress")


def test_no_unit_at_all():
    none = KEYS.take(np.zeros(0, np.int64))
    assert none.units == 0
    assert fields_matrix(none, "5-tuple").data.shape[0] == 0


def test_both_directions_give_the_same_symmetric_keys():
    back = KEYS._replace(src=KEYS.dst, dst=KEYS.src, sport=KEYS.dport, dport=KEYS.sport)
    for field_set in FIELD_SETS:
        one = fields_matrix(symmetric(KEYS), field_set)
        other = fields_matrix(symmetric(back), field_set)
        np.testing.assert_array_equal(one.data, other.data)
    # 10.0.0.1 is below 10.1.2.4, 4791 below 5000.
    assert row(symmetric(KEYS), "4-tuple", 2) == bytes([10, 0, 0, 1, 10, 1, 2, 4]) + (
        (4791).to_bytes(2, "big") + (5000).to_bytes(2, "big")
    )


def test_addresses_as_text():
    assert addresses(["10.0.0.1"]).tobytes() == bytes(10) + b"\xff\xff\x0a\0\0\x01"
    with pytest.raises(UsageError, match="10.0.0.300 is not an IP address"):
        addresses(["10.0.0.300"])
    with pytest.raises(UsageError, match="same address family"):
        packet_keys(["10.0.0.1"], ["fd00::1"], [1])


# Values to members: exact remainders, ranges and thresholds, for any group.

WEIGHTS = st.lists(st.integers(0, 300), min_size=1, max_size=40).filter(any)


def plain(value: int, group: Group, reduction: str, bits: int) -> int:
    """What the documents say, in whole numbers."""
    if group.buckets is not None:
        return int(group.buckets[value % len(group.buckets)])
    weights = group.weights.tolist()
    if reduction == "threshold":
        total, cumulative = sum(weights), 0
        for member, weight in enumerate(weights):
            cumulative += weight
            # DIV_ROUND_CLOSEST of positive numbers: halves go up.
            if value <= int(Fraction(cumulative << bits, total) + Fraction(1, 2)) - 1:
                return member
        raise AssertionError("the last threshold is the highest value")
    divisor = int(np.gcd.reduce(weights))
    table = [m for m, weight in enumerate(weights) for _ in range(weight // divisor)]
    if reduction == "modulo":
        return table[value % len(table)]
    return table[value * len(table) >> bits]


def chosen(values, group, reduction, bits):
    packed = pack_groups([equal_cost(3), group], reduction, bits)
    array = np.array([values], np.uint32)
    one, each = (np.empty(array.shape, np.uint16) for _ in range(2))
    choose_one_group(array, packed, np.int64(1), one)
    choose_by_unit(array, packed, np.ones(array.shape, np.int32), each)
    assert one.tolist() == each.tolist()
    return one[0].tolist()


def near(weights: list[int], bits: int) -> list[int]:
    """Values beside every border of a group, where rounding shows."""
    total, cumulative, found = sum(weights), 0, {0, (1 << bits) - 1}
    for weight in weights:
        cumulative += weight
        border = (cumulative << bits) // total
        found |= {border + step for step in (-2, -1, 0, 1, 2)}
    return sorted(v for v in found if 0 <= v < 1 << bits)


@given(WEIGHTS, st.sampled_from([8, 16, 31, 32]), st.lists(st.integers(0, (1 << 32) - 1)))
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_any_weights(reduction, weights, bits, values):
    group = Group(np.array(weights))
    values = [v % (1 << bits) for v in values] + near(weights, bits)
    assert chosen(values, group, reduction, bits) == [
        plain(v, group, reduction, bits) for v in values
    ]


@pytest.mark.thorough
@examples(25)
@given(st.integers(1, 65_535), st.integers(0, (1 << 32) - 1))
@example(65_535, (1 << 32) - 1)
@example(1, (1 << 32) - 1)
@example(512, 511)
@example(511, 511 * 8_405_024 - 1)
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_groups_of_any_size(reduction, size, value):
    group = equal_cost(size)
    values = [value, (1 << 32) - 1, value // size * size]
    assert chosen(values, group, reduction, 32) == [plain(v, group, reduction, 32) for v in values]


@pytest.mark.thorough
@pytest.mark.parametrize("size", [*range(1, 20), 64, 127, 512])
def test_every_border_of_equal_groups(size):
    values = near([1] * size, 31)
    group = equal_cost(size)
    assert chosen(values, group, "threshold", 31) == [
        plain(v, group, "threshold", 31) for v in values
    ]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(0, (1 << 31) - 1))
@pytest.mark.parametrize("reduction", ["modulo", "range", "threshold"])
def test_resilient_groups_are_indexed_by_the_remainder(reduction, buckets, value):
    group = Group(np.ones(5, np.int64), np.array(buckets, np.uint16))
    assert chosen([value], group, reduction, 31) == [buckets[value % len(buckets)]]


def test_units_without_a_group_get_member_0():
    packed = pack_groups([equal_cost(4)], "modulo", 16)
    out = np.full((1, 3), 9, np.uint16)
    values = np.array([[3, 3, 3]], np.uint32)
    choose_by_unit(values, packed, np.array([[0, -1, 7]], np.int32), out)
    assert out.tolist() == [[3, 0, 0]]


@pytest.mark.parametrize(
    "group",
    [
        Group(np.zeros(0, np.int64)),
        Group(np.zeros(3, np.int64)),
        Group(np.array([1, -1])),
        Group(np.ones(65_536, np.int64)),
        Group(np.array([65_535, 2])),
        Group(np.ones(2, np.int64), np.array([], np.uint16)),
        Group(np.ones(2, np.int64), np.array([0, 2], np.uint16)),
    ],
)
def test_impossible_groups(group):
    with pytest.raises(UsageError):
        pack_groups([group], "modulo", 16)
    with pytest.raises(UsageError):
        equal_cost(0)


# Settings of a hash.


def test_how_a_seed_became_known_changes_no_hash():
    assert HashSettings(seed=7, seed_recovered=True) == HashSettings(seed=7)
    assert HashSettings(seed=7) != HashSettings(seed=8)
    assert HashSettings(extra={"policy": 1}) != HashSettings()


def test_plain_groups():
    assert equal_cost(3).weights.tolist() == [1, 1, 1] and equal_cost(1).buckets is None
    with pytest.raises(UsageError, match="at least one next hop"):
        equal_cost(0)
