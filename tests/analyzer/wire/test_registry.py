"""Interned addresses against a plain dictionary."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.registry import Endpoints, SegmentLists, parse_usid_format

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
