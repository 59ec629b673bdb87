"""Names of taps, links of a fabric, parallel points, and the next point of packets."""

from __future__ import annotations

import itertools
from ipaddress import ip_network
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.measures.hops.state import EDGE, END, START
from rocescope.analyzer.measures.hops.vantage import (
    Crossings,
    Evidence,
    FabricLinks,
    FabricTaps,
    Vantage,
    device_between,
    direction,
    parallel_points,
    parts_of,
    points_of,
    short_names,
    sides,
)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a/leaf1-spine1.pcap.gz", "b/leaf1-spine2.pcapng"], ["leaf1-spine1", "leaf1-spine2"]),
        (["run7.leaf1-spine1.cap", "run7.leaf2-spine1.cap"], ["leaf1-spine1", "leaf2-spine1"]),
        (["run7_A_end.pcap", "run7_B_end.pcap"], ["A", "B"]),
        (["x/a.pcap", "y/a.pcap"], ["a (x)", "a (y)"]),  # without folders they are equal
        (["a.pcap", "/r/x/a.pcap", "/r/y/a.pcap"], ["a", "a (x)", "a (y)"]),
        (["a.pcap", "/r/x/a.pcap"], ["a", "a (x)"]),
        (["/r/x/1/a.pcap", "/r/y/1/a.pcap", "/r/b.pcap"], ["a (x/1)", "a (y/1)", "b"]),
        (["x/a.pcap", "x/a.pcap.gz"], ["x/a.pcap", "x/a.pcap.gz"]),  # also in one folder
        (["eth0", "eth1"], ["eth0", "eth1"]),
        (["only.pcap"], ["only"]),
        (["only.pcapng:eth0"], ["only"]),
        (["a-b.pcapng:eth1", "x/b-c.pcapng:eth2"], ["a-b", "b-c"]),
        (["run.pcapng:a-b", "run.pcapng:a-c"], ["a-b", "a-c"]),
        (["r.pcapng:a/1", "r.pcapng:a/2", "s.pcapng:a/1"], ["r:a/1", "r:a/2", "s"]),
        (["a.pcap", "erspan 1 from fd00::1"], ["a", "erspan 1 from fd00::1"]),
        ([".pcap", "b.pcap"], [".pcap", "b"]),
        (
            [
                "p3-r7-leaf1-eth1-to-p3-r7-spine1-eth9.pcap",
                "p3-r7-leaf1-eth2-to-p3-r7-spine1-eth9.pcap",
                "p3-r7-leaf2-eth1-to-p3-r7-spine2-eth9.pcap",
            ],
            ["leaf1-eth1-spine1", "leaf1-eth2-spine1", "leaf2-eth1-spine2"],
        ),
        (
            ["leaf1 uplink to the spine1", "leaf1 uplink to the spine2"],  # spine1, spine2 at leaf1
            ["leaf1 uplink to the spine1", "leaf1 uplink to the spine2"],
        ),
        (["p3-r7-a-b in", "p3-r7-a-b out"], ["p3-r7-a-b in", "p3-r7-a-b out"]),
        ([], []),
    ],
)
def test_short_names(names, short):
    assert short_names(names) == short


@pytest.mark.parametrize(
    ("near", "far", "device", "way"),
    [
        ("leaf1-spine3", "leaf2-spine3", "spine3", "leaf1 to leaf2"),
        ("leaf2-spine3", "leaf1-spine3", "spine3", "leaf2 to leaf1"),
        ("H1-leaf1", "leaf1-spine3", "leaf1", "H1 to spine3"),
        ("a-b (day 1/leaf1)", "b-c (day 1/leaf1)", "b", "a to c"),
        ("leaf1--spine3", "spine3_leaf2", "spine3", "leaf1 to leaf2"),
        ("sender", "receiver", None, None),
        ("leaf1-spine3", "leaf1-spine3", None, None),
        ("eth0 in", "eth1 out", None, None),
        ("leaf1-eth3-spine3-eth1", "leaf2-eth3-spine3-eth2", "spine3", "leaf1 to leaf2"),
        ("1-2", "2-3", "2", "1 to 3"),
        ("leaf1-eth1", "leaf1-eth2", "leaf1", "eth1 to eth2"),
        ("a-et-0/0/1-b-et-0/0/2", "b-et-0/0/3-c-et-0/0/1", "b", "a to c"),
        ("leaf1-Gi0/1-spine1-Gi0/2", "spine1-Gi0/3-leaf2-Gi0/1", "spine1", "leaf1 to leaf2"),
        # Ports of two hosts or switches with the same name are no device in between.
        ("h1-mlx5_0", "h2-mlx5_0", None, None),
        ("h1-mlx5", "h2-mlx5", None, None),
        ("h1-enp1s0f0np0", "h2-enp1s0f0np0", None, None),
        ("leaf1_Ethernet1_1", "spine1_Ethernet1_2", None, None),
        ("leaf1-1", "leaf2-1", None, None),
    ],
)
def test_devices(near, far, device, way):
    assert device_between(near, far) == device
    assert direction(near, far) == way


def test_parts():
    assert parts_of("leaf1 to spine3 rx") == ["leaf1", "spine3"]


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
    known = FabricTaps(links_of(CABLES), points_of(taps), ADDRESSES)
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
    known = FabricTaps(links_of(CABLES), points_of(taps), [*ADDRESSES, "192.0.2.1", "fd00::1"])
    assert known.after(0, 4) is None and known.after(1, 0) is None
    assert known.after(0, 3) is None  # the tap of one direction
    assert [line[:30] for line in known.limits] == [
        "3 of 4 taps are not named like",
        "2 of 6 addresses are not in th",
    ]
    assert FabricTaps(links_of(CABLES), points_of(taps[:1]), ADDRESSES).limits == []


def test_parallel_links_have_no_tap_of_their_own() -> None:
    double = links_of([*CABLES, "leaf2-spine1"])
    known = FabricTaps(double, points_of(["leaf1-spine1", "leaf2-spine1", "H3-leaf2"]), ADDRESSES)
    assert known.after(0, 2) == {2}
    assert known.after(0, 3) is None


def test_a_link_with_two_taps_tells_nothing() -> None:
    taps = ["leaf1-spine1", "a leaf2-spine1", "b leaf2-spine1"]
    known = FabricTaps(links_of(CABLES), points_of(taps), ADDRESSES)
    assert known.after(0, 2) is None


def test_hosts_of_networks() -> None:
    networks = {ip_network("10.0.0.0/8"): "a", ip_network("10.1.0.0/16"): "b",
                ip_network("fd00::1"): "c"}  # fmt: skip
    fabric = FabricLinks([], frozenset("abc"), networks)
    found = [fabric.host_of(t) for t in ("10.2.0.1", "10.1.0.1", "::ffff:10.1.0.1", "fd00::1")]
    assert found == ["a", "b", "b", "c"]
    assert fabric.host_of("11.0.0.1") is None and fabric.host_of("fd00::2") is None


def no_copies(taps):
    return np.zeros((taps, taps), np.int64)


def sets_of(seen, copies):
    """`seen`: packets of each group at each tap."""
    seen = np.array(seen, np.int64).reshape(-1, len(copies))
    group, tap = np.nonzero(seen)
    sets = parallel_points(Crossings(group, tap, seen[group, tap]), copies, len(copies))
    return [list(members) for members in sets]


def test_taps_that_split_the_packets_of_a_pair_are_parallel():
    seen = [[10, 12, 0, 0], [0, 9, 11, 0], [0, 0, 0, 50]]
    assert sets_of(seen, no_copies(4)) == [[0, 1, 2]]


def test_taps_that_see_the_same_packets_are_in_series():
    copies = no_copies(2)
    copies[0, 1] = 99
    assert sets_of([[100, 99]], copies) == []


def test_third_tap_in_series_though_copies_name_only_the_first():
    """Host link, two parallel links, far host link; no hop limit tells them apart."""
    copies = no_copies(4)
    copies[0, 1], copies[0, 2], copies[0, 3] = 60, 40, 100
    assert sets_of([[100, 60, 40, 100]], copies) == [[1, 2]]


def test_an_unused_link_belongs_to_the_only_set():
    assert sets_of([[5, 0, 7]], no_copies(3)) == [[0, 1, 2]]


def test_an_unused_link_belongs_to_neither_of_two_sets():
    seen = [[5, 7, 0, 0, 0], [0, 0, 5, 7, 0]]
    assert sets_of(seen, no_copies(5)) == [[0, 1], [2, 3]]


def test_nothing_seen():
    assert sets_of([], no_copies(3)) == []


def plain_sets(seen, copies):
    """The definition, for each two taps."""
    taps = len(copies)
    first_here = [max(0, seen[:, f].sum() - copies[:, f].sum()) for f in range(taps)]
    joined = [{t} for t in range(taps)]
    for a, b in itertools.combinations(range(taps), 2):
        least = np.minimum(seen[:, a], seen[:, b]).sum()
        shared = max(
            copies[a, b] + copies[b, a],
            *(
                copies[f, a] + copies[f, b] - first_here[f]
                for f in range(taps)
                if copies[f, a] and copies[f, b]
            ),
            0,
        )
        if least and shared <= 0.1 * least:
            union = joined[a] | joined[b]
            for tap in union:
                joined[tap] = union
    parallel = sorted({tuple(sorted(s)) for s in joined if len(s) > 1})
    if len(parallel) == 1:
        idle = (t for t in range(taps) if not seen[:, t].any())
        parallel = [tuple(sorted({*parallel[0], *idle}))]
    return [list(s) for s in parallel]


@given(st.data())
def test_sets_equal_their_plain_twin(data):
    taps = data.draw(st.integers(1, 6))
    counts = st.sampled_from([0, 0, 0, 1, 5, 50])
    rows = st.lists(counts, min_size=taps, max_size=taps)
    seen = np.array(data.draw(st.lists(rows, max_size=4)), np.int64).reshape(-1, taps)
    copies = np.array(data.draw(st.lists(rows, min_size=taps, max_size=taps)), np.int64)
    np.fill_diagonal(copies, 0)
    assert sets_of(seen, copies) == plain_sets(seen, copies)


def test_a_thousand_taps_that_see_one_packet_are_in_series():
    copies = no_copies(1000)
    copies[0, 1:] = 1
    assert sets_of(np.ones((1, 1000)), copies) == []


def test_sides_of_a_leaf():
    pairs = [(0, 2, 63), (2, 0, 62), (0, 3, 63), (3, 1, 62), (0, 0, 63)]
    assert sides(pairs) == {0: 0, 1: 0, 2: 1, 3: 1}


def test_hop_limits_join_pairs_that_never_mix():
    """A permutation: 0 to 3 and 2 to 1. Without hop limits nobody knows who is together."""
    pairs = [(0, 3, 7), (3, 0, 6), (1, 2, 7), (2, 1, 6)]
    assert sides(pairs) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert sides([(a, b, 0) for a, b, _ in pairs]) is None


def test_no_sides_when_everyone_talks_to_everyone():
    assert sides([(0, 1, 0), (1, 2, 0), (2, 0, 0)]) is None
    assert sides([]) is None


def test_how_parallel_points_are_known():
    seen = Crossings(np.array([0, 0]), np.array([0, 2]), np.array([5, 7]))
    (members,) = parallel_points(seen, no_copies(3), 3)
    assert members == {0: Evidence.HOP_LIMIT, 1: Evidence.ONLY_SET, 2: Evidence.HOP_LIMIT}


LINKS = ["H1-leaf1", "leaf1-spine1", "leaf1-spine2", "spine1-leaf2", "H3-leaf2"]
HOST, UP, OTHER_UP, DOWN, FAR_HOST = range(5)


def edge(flow, near, far, packets, limit):
    """An EDGE record: packets of a flow with a hop limit at the first of two points."""
    record = np.zeros((), EDGE)
    for name, value in (
        ("flow", flow), ("from_tap", near), ("to_tap", far), ("packets", packets),
        ("limit_min", limit), ("limit_max", limit), ("first_ns", 10 * flow), ("last_ns", 100),
    ):  # fmt: skip
        record[name] = value
    return record


def passing(flow, points, packets=10):
    """The edges of a flow over points, with its full hop limit at the first of them."""
    path = [START, *points, END]
    limits = [64, *range(64, 64 - len(points), -1)]
    return [
        edge(number, near, far, packets, limit)
        for number in (flow, -1)
        for near, far, limit in zip(path, path[1:], limits, strict=False)
    ]


def vantage(*edges):
    """Flows 0 and 1 go from host 0 to host 9, flow 2 from host 0 to host 8, flow 3 from 9 to 0."""
    sources, destinations = np.array([0, 0, 0, 9]), np.array([9, 9, 8, 0])
    return Vantage(np.array(edges), sources, destinations, LINKS)


WHOLE_PATH = (HOST, UP, DOWN, FAR_HOST)


def test_points_and_what_passed_between_them():
    seen = vantage(*passing(0, WHOLE_PATH), *passing(3, WHOLE_PATH[::-1]))
    assert [point.devices for point in seen.points[:2]] == [("H1", "leaf1"), ("leaf1", "spine1")]
    forward = set(pairwise(WHOLE_PATH))
    assert set(seen.hops) == forward | {hop[::-1] for hop in forward}
    assert seen.next_of[0, UP] == {DOWN: (10, 0, 100)}
    assert [seen.device_between(*hop) for hop in pairwise(WHOLE_PATH)] == [
        "leaf1", "spine1", "leaf2",
    ]  # fmt: skip
    assert seen.device_between(HOST, FAR_HOST) is None
    assert seen.link_of == {0: {HOST}, 9: {FAR_HOST}}
    assert seen.tapped_hosts == {0, 9}
    assert seen.partly_covered == set()


def test_the_next_point_and_how_it_is_known():
    begin, end = edge(1, START, HOST, 3, 64), edge(1, HOST, END, 3, 64)
    same_flow = vantage(*passing(1, WHOLE_PATH), end)
    assert same_flow.downstream(end) == (UP, Evidence.FLOW)
    others = vantage(*passing(0, WHOLE_PATH), begin, end)
    assert others.downstream(end) == (UP, Evidence.DESTINATION)
    both_ways = (*passing(3, WHOLE_PATH[::-1]), *passing(2, (HOST, UP)), begin, end)
    assert vantage(*both_ways).downstream(end) == (UP, Evidence.HOST)
    assert vantage(begin, end).downstream(end) is None
    arrived = edge(0, FAR_HOST, END, 10, 61)
    assert (
        vantage(*passing(0, WHOLE_PATH), *passing(3, WHOLE_PATH[::-1])).downstream(arrived) is None
    )


def test_a_flow_that_is_spread_over_points_has_no_single_next_point():
    end = edge(0, HOST, END, 3, 64)
    spread = vantage(*passing(0, (HOST, UP)), edge(0, HOST, OTHER_UP, 10, 64), end)
    assert spread.downstream(end) == (-1, Evidence.FLOW)


def test_a_source_whose_flows_begin_at_different_distances_is_partly_covered():
    starts = edge(0, START, HOST, 10, 64), edge(0, START, UP, 10, 63)
    assert vantage(*starts).partly_covered == {0}
