"""CE marks, copies and other DSCPs that arise on a hop."""

from __future__ import annotations

import pytest
from fabric_captures import (
    CE,
    ECT,
    MS,
    between,
    duplicate,
    names,
    rewrite,
    severe,
    simulate,
    some,
)

HOP = "leaf2-spine3", "leaf1-spine3"
PLACE = (*HOP, "spine3", "leaf2 to leaf1")
FROM, UNTIL = 100 * MS, 300 * MS


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    ("kind", "make", "share"),
    [
        ("ecn-marking", rewrite(26 << 2 | CE), 0.1),
        ("duplication", duplicate, 0.1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 0.2),
    ],
)
def test_what_a_spine_does_to_packets(tmp_path, kind, make, share, ipv6):
    run = simulate(fault=between(*HOP, make, FROM, UNTIL, some(share)))
    (one,) = severe(tmp_path, run, ipv6)
    names(one, kind, PLACE, run.hits, ipv6)
    assert one.until_ns == run.hits[-1].time_ns
    assert one.of_packets == sum(s.packet.src > 2 for s in run.taps[HOP[0]])


def test_a_leaf_that_marks_towards_one_host(tmp_path):
    """One finding for all links that lead there."""
    make = rewrite(26 << 2 | CE)
    run = simulate(fault=between("leaf1-spine*", "H2-leaf1", make, FROM, which=some(0.05)))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", (None, "H2-leaf1", "leaf1", None), run.hits)


def test_marks_that_packets_bring_along_are_not_made_here(tmp_path):
    run = simulate(fault=between("H4-leaf2", "leaf2-*", rewrite(26 << 2 | CE), FROM))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", ("H4-leaf2", None, "leaf2", None), run.hits)
