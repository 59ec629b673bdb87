"""The next tap by the links of a fabric, against ways enumerated one by one."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import pairwise

import pytest

from rocescope.analyzer.measures.hops.fabric_links import FabricLinks, FabricTaps

CABLES = [
    *(f"H{n}-leaf{(n + 1) // 2}" for n in range(1, 5)),
    *(f"leaf{leaf}-spine{spine}" for leaf in (1, 2) for spine in (1, 2, 3)),
]
ADDRESSES = ["10.0.1.1", "10.0.1.2", "10.0.2.3", "10.0.2.4"]
HOSTS = ["H1", "H2", "H3", "H4"]


def links_of(cables: list[str]) -> FabricLinks:
    ends = [tuple(cable.split("-")) for cable in cables]
    return FabricLinks(
        links=[link for a, b in ends for link in ((a, b), (b, a))],
        hosts=frozenset(HOSTS),
        networks={ip_network(a): h for a, h in zip(ADDRESSES, HOSTS, strict=True)},
    )


def ways(source: str, target: str) -> list[list[str]]:
    """The cables of every shortest way between two hosts."""
    near, far = (f"leaf{(int(host[1]) + 1) // 2}" for host in (source, target))
    middles = [[]] if near == far else [[f"spine{n}", far] for n in (1, 2, 3)]
    nodes = [[source, near, *middle, target] for middle in middles]
    cables = [{"-".join(pair), "-".join(pair[::-1])} for way in nodes for pair in pairwise(way)]
    assert all(names & set(CABLES) for names in cables)
    return [[(({"-".join(p), "-".join(p[::-1])}) & set(CABLES)).pop() for p in pairwise(way)]
            for way in nodes]  # fmt: skip


@pytest.mark.parametrize(
    "taps",
    [
        CABLES,
        CABLES[4:],
        ["H1-leaf1", "H3-leaf2", "leaf2-spine2", "leaf1-spine2"],
        ["H1-leaf1", "leaf1-spine1", "leaf1-spine2", "leaf2-spine3"],
    ],
)
def test_every_tap_and_destination(taps: list[str]) -> None:
    known = FabricTaps(links_of(CABLES), taps, ADDRESSES)
    for here, name in enumerate(taps):
        for number, host in enumerate(HOSTS):
            found: set[int] = set()
            untapped = passes = False
            for source in set(HOSTS) - {host}:
                for way in ways(source, host):
                    if name in way and not (name.startswith(host)):
                        passes = True
                        later = [taps.index(c) for c in way[way.index(name) + 1 :] if c in taps]
                        found |= set(later[:1])
                        untapped |= not later
            if name.startswith(host):
                assert known.after(here, number) == frozenset()
            elif passes:
                assert known.after(here, number) == (None if untapped else found)


def test_what_the_fabric_does_not_tell() -> None:
    taps = ["leaf1-spine1", "eth0", "leaf1-spine9", "leaf2-spine1 in"]
    known = FabricTaps(links_of(CABLES), taps, [*ADDRESSES, "192.0.2.1", "fd00::1"])
    assert known.after(0, 4) is None and known.after(1, 0) is None
    assert known.after(0, 3) is None  # the tap of one direction
    assert [line[:30] for line in known.limits] == [
        "3 of 4 taps are not named like",
        "2 of 6 addresses are not in th",
    ]
    assert FabricTaps(links_of(CABLES), taps[:1], ADDRESSES).limits == []


def test_parallel_links_have_no_tap_of_their_own() -> None:
    double = links_of([*CABLES, "leaf2-spine1"])
    known = FabricTaps(double, ["leaf1-spine1", "leaf2-spine1", "H3-leaf2"], ADDRESSES)
    assert known.after(0, 2) == {2}
    assert known.after(0, 3) is None


def test_a_link_with_two_taps_tells_nothing() -> None:
    taps = ["leaf1-spine1", "a leaf2-spine1", "b leaf2-spine1"]
    known = FabricTaps(links_of(CABLES), taps, ADDRESSES)
    assert known.after(0, 2) is None


def test_hosts_of_networks() -> None:
    networks = {ip_network("10.0.0.0/8"): "a", ip_network("10.1.0.0/16"): "b",
                ip_network("fd00::1"): "c"}  # fmt: skip
    fabric = FabricLinks([], frozenset("abc"), networks)
    found = [fabric.host_of(t) for t in ("10.2.0.1", "10.1.0.1", "::ffff:10.1.0.1", "fd00::1")]
    assert found == ["a", "b", "b", "c"]
    assert fabric.host_of("11.0.0.1") is None and fabric.host_of("fd00::2") is None
