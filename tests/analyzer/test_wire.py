"""Arithmetic modulo 2^24, beside a search for the shortest way round."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.bth import PSN_MASK, id_distance, psn_add, psn_distance
from rocescope.analyzer.wire.registry import Endpoints, SegmentLists, parse_usid_format
from rocescope.analyzer.wire.taps import Tap

# Arithmetic modulo 2^24, beside a search for the shortest way round.

PSNS = st.integers(0, PSN_MASK) | st.sampled_from([0, 1, 1 << 23, PSN_MASK])


def nearest(value, origin, modulus):
    """The signed step from origin to value that is shortest; half way round counts as behind."""
    return min(((value - origin) + k * modulus for k in (-1, 0, 1)), key=lambda d: (abs(d), d))


@given(PSNS, PSNS)
def test_distance_is_the_shortest_way_round(psn, origin):
    distance = psn_distance(psn, origin)
    assert distance == nearest(psn, origin, 1 << 24)
    assert psn_add(origin, distance) == psn


@given(PSNS, st.integers(-(1 << 25), 1 << 25))
def test_moving_on_and_back(psn, count):
    moved = psn_add(psn, count)
    assert 0 <= moved <= PSN_MASK and psn_add(moved, -count) == psn


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_identifications_of_ipv4_have_16_bits(ip_id, origin):
    assert id_distance(ip_id, origin) == nearest(ip_id, origin, 1 << 16)


# Interned addresses against a plain dictionary.

# Interned addresses against a plain dictionary.

ADDRESSES = st.one_of(
    st.ip_addresses().map(str),
    st.integers(0, 20).map(lambda i: str(ipaddress.IPv4Address(i))),
    st.integers(0, 20).map(lambda i: str(ipaddress.IPv6Address(i << 64))),
)


@given(st.lists(ADDRESSES, max_size=100), st.integers(1, 8))
def test_numbers_are_in_order_of_first_appearance(texts: list[str], capacity: int) -> None:
    endpoints = Endpoints(capacity)
    expected: dict[str, int] = {}
    for text in texts:
        value = ipaddress.ip_address(text)
        mapped = value.ipv4_mapped if isinstance(value, ipaddress.IPv6Address) else None
        name = str(mapped or value)
        assert endpoints.index_of(text) == expected.get(name)
        assert endpoints.add(text) == expected.setdefault(name, len(expected))
    assert len(endpoints) == len(expected)
    assert endpoints.texts() == list(expected)


def test_an_ipv4_host_and_its_gid_are_one() -> None:
    endpoints = Endpoints()
    assert endpoints.add("10.0.0.1") == endpoints.add("::ffff:10.0.0.1") == 0
    assert endpoints.text(0) == "10.0.0.1"


def test_text_forms() -> None:
    endpoints = Endpoints()
    for text in ("0.0.0.0", "255.255.255.255", "::", "2001:db8::1", "fe80::1:ffff:a00:1"):
        assert endpoints.text(endpoints.add(text)) == text


def test_unknown_and_senseless() -> None:
    endpoints = Endpoints()
    assert endpoints.index_of("10.0.0.1") is None
    with pytest.raises(UsageError, match="'10.0.0' is not an IPv4 or IPv6 address"):
        endpoints.index_of("10.0.0")
    with pytest.raises(IndexError):
        endpoints.text(0)


@given(st.lists(ADDRESSES, max_size=60), st.integers(1, 8), st.integers(2, 12))
def test_addresses_beyond_the_limit_are_one(texts: list[str], capacity: int, most: int) -> None:
    endpoints, free = Endpoints(capacity, most), Endpoints(capacity)
    assert endpoints.beyond == most - 1
    for text in texts:
        assert endpoints.add(text) == min(free.add(text), most - 1)
    assert len(endpoints) == min(len(free), most)
    assert endpoints.texts() == (free.texts()[: most - 1] + ["::"])[: len(endpoints)]
    assert len(endpoints.arrays.high) <= max(2 * capacity, 2 * most)


def test_many_addresses_that_differ_in_few_bits() -> None:
    endpoints = Endpoints(capacity=2)
    for i in range(5000):
        endpoints.add(str(ipaddress.IPv6Address(i << 100)))
    assert len(endpoints) == 5000
    assert all(endpoints.index_of(endpoints.text(i)) == i for i in range(0, 5000, 77))


# Segment lists and their numbers; lists read from packets are in decode/test_mrc.py.


def test_a_list_has_one_number() -> None:
    lists = SegmentLists()
    first, second = 0xFCBB_BB00_0101_0201 << 64, 0x2001_0DB8 << 96 | 1
    numbers = [lists.add((first,)), lists.add((first, second)), lists.add((first,))]
    assert numbers == [1, 2, 1]
    assert lists.segments(2) == (first, second)
    assert lists.name(1) == "fcbb:bb00:0101:0201"
    assert lists.name(9) == "segment list 9"


@pytest.mark.parametrize("text", ["", "32", "32:12", "4:16", "128:16", "a:b", "33:16"])
def test_what_is_no_format(text: str) -> None:
    with pytest.raises(UsageError, match="uSID format"):
        parse_usid_format(text)


# Capture filters: which of them keep all packets of every flow.

ROOT = Path(__file__).parents[2]
RECOMMENDED = re.findall(
    r"['`\"]((?:udp|ip6?|vlan)\b[^'`\"\n]*\b4791\b[^'`\"\n]*)['`\"]",
    (ROOT / "docs/captures.md").read_text() + (ROOT / "tests/lab/topology.py").read_text(),
)


def leaves_out(expression: str) -> bool:
    return Tap("x", 1, filter=expression).leaves_out_roce


def test_the_recommended_filters_keep_all() -> None:
    assert len(RECOMMENDED) == 4
    assert [each for each in RECOMMENDED if leaves_out(each)] == []


@pytest.mark.parametrize(
    "expression",
    [
        "udp",
        "vlan and udp dst port 4791",
        "udp port 4791 or arp",
        "arp || udp port 4791",
        "vlan && udp port 4791",
        "UDP DST PORT 4791 OR ARP",
        "src or dst port 4791",
        "udp dst or src port 4791 or icmp",
        "((udp port 4791)or(arp or not tcp))",
        "arp or (host 10.0.0.1 and (tcp or icmp)) or (icmp or udp dst port 4791)",
        "udp dst port 4791 or vlan or (vlan and udp dst port 4791) or arp",
    ],
)
def test_a_filter_with_all_roce_keeps_all(expression: str) -> None:
    assert not leaves_out(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "not udp port 4791",
        "!udp port 4791",
        "! udp port 4791 or arp",
        "not (udp port 4791 or arp)",
        "udp dst port 4791 and host 10.0.0.1",
        "udp dst port 4791 and udp[8] = 0x0a",
        "udp dst port 4791 or arp and host 10.0.0.1",  # both of equal precedence
        "(udp dst port 4791 or arp) && host 10.0.0.1",
        "(udp dst port 4791) or (arp) and (host 10.0.0.1)",
        "arp or (udp dst port 4791 and src host 10.0.0.1)",
        "udp dst port 4791 or (vlan and src host 10.0.0.1)",
        "vlan 5 or udp dst port 4791",
        "ip and udp dst port 4791 or src host 10.0.0.1",
        "udp src port 4791",
        "src and dst port 4791",
        "udp dst port 47910 or arp",
        "arp or",
        ")(or arp",
        "((((" * 50 + "arp",
    ],
)
def test_a_filter_that_may_leave_out_roce(expression: str) -> None:
    assert leaves_out(expression)
