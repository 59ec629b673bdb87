"""VRFs, bonds and tunnels in words."""

from __future__ import annotations

from answers import port

from rocescope.replay.fabrics.devices.limits import limits_of


def test_each_is_one_line():
    ports = [
        port("swp1", master="bond0"),
        port("swp2", master="bond0"),
        port("swp3", vrf="red"),
        port("vni10", kind="vxlan"),
        port("vni20", kind="vxlan"),
        port("bond0"),
    ]
    assert [line.split(":")[0] for line in limits_of(ports)] == [
        "VRF red is left out with swp3",
        "bond0 joins swp1, swp2",
        "VXLAN on vni10, vni20",
    ]
    assert not list(limits_of([port("swp1")]))


def test_thousands_are_counted():
    ports = [port(f"e{i}", vrf=f"v{i}", master=f"b{i}") for i in range(20_000)]
    assert list(limits_of(ports)) == [
        "20,000 VRFs are left out with 20,000 ports: only the main table was read",
        "20,000 bonds join 20,000 ports: which a packet takes is not known",
    ]
