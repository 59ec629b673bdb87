"""Names of taps and devices."""

from __future__ import annotations

import pytest

from rocescope.analyzer.measures.hops.names import (
    device_between,
    direction,
    parts_of,
    short_names,
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
