"""Records of devices."""

from __future__ import annotations

from answers import connected, route


def test_connected_networks_have_one_next_hop_without_gateway():
    assert connected("10.0.0.0/24", "eth1").connected
    assert not route("10.0.0.0/24", ("10.1.0.1", "eth1")).connected
    assert not route("10.0.0.0/24", ("", "eth1"), ("", "eth2")).connected
    assert not route("10.0.0.0/24").connected  # a blackhole
