"""Hosts that the user names, and the taps next to them."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.measures.conformance.options import (
    endpoint_of,
    hosts_at_taps,
    parse_at_host,
    parse_same_port,
)

ADDRESSES = ["10.0.0.1", "00:11:22:33:44:55", "fd00::1", "10.0.0.2", "10.0.0.3"]
TAPS = {0: "leaf1", 3: "leaf2"}


def test_an_address_in_any_form():
    assert endpoint_of("10.0.0.2", ADDRESSES, "--host") == 3
    assert endpoint_of("FD00:0:0::0001", ADDRESSES, "--host") == 2
    with pytest.raises(UsageError, match="--host: 'leaf1' is not an IP address"):
        endpoint_of("leaf1", ADDRESSES, "--host")
    with pytest.raises(UsageError, match=r"10.9.9.9 is not in this capture, .*10.0.0.2, \.\.\.$"):
        endpoint_of("10.9.9.9", ADDRESSES, "--host")


def test_a_host_and_its_tap():
    assert parse_at_host("10.0.0.1") == ("10.0.0.1", None)
    assert parse_at_host("10.0.0.1=up=1") == ("10.0.0.1", "up=1")
    named = [parse_at_host("10.0.0.1=leaf2"), parse_at_host("fd00::1=leaf2")]
    assert hosts_at_taps(named, ADDRESSES, TAPS) == {0: [], 3: [0, 2]}
    assert hosts_at_taps([("10.0.0.2", None)], ADDRESSES, {7: "only"}) == {7: [3]}
    for name in (None, "leaf9"):  # several taps, or none
        with pytest.raises(UsageError, match=r"as 10.0.0.1=TAP; taps are leaf1, leaf2$"):
            hosts_at_taps([("10.0.0.1", name)], ADDRESSES, TAPS)


def test_addresses_of_one_port():
    assert parse_same_port("10.0.0.1, FD00::0:1") == ("10.0.0.1", "fd00::1")
    with pytest.raises(UsageError, match="is not a list of addresses"):
        parse_same_port("10.0.0.1,leaf1")
    with pytest.raises(UsageError, match="needs two addresses"):
        parse_same_port("fd00::1,fd00:0::1")
