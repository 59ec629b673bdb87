"""Key columns and the bytes a hash reads, against bytes that scapy wrote."""

from __future__ import annotations

import numpy as np
import pytest
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
