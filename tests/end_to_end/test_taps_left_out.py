"""Taps left out of twelve: a diagnosis of what is left never contradicts the truth.

The truth is known from all twelve: r03 loses 71 packets of three queue pairs in spine2, from leaf2
to leaf1, until flows move; r09 loses 609 in spine2, from leaf1 to leaf2 (601 of H2, 8 of H1).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from captures import DATA
from examples import first, thorough

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

LOST = {"r03_link_down_reroute": 71, "r09_packet_spray_h1": 609}
WAY = {
    "r03_link_down_reroute": ("leaf2-spine2", "leaf1-spine2"),
    "r09_packet_spray_h1": ("leaf1-spine2", "leaf2-spine2"),
}
"""The taps before and after the fault."""
LOSSES = ("loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down")
FOUND = {
    "r03_link_down_reroute": {
        *("loss", "blackhole", "outage", "link-down", "rehash", "timeout-recovery")
    },
    "r09_packet_spray_h1": {
        *("loss", "blackhole", "outage", "rate-limit", "queueing", "reordering"),
        *("timeout-recovery", "retry-storm"),
    },
}
"""What a part of the taps may show of each run: the fault, its effects, and what goes with it."""
MISLED = {
    "r03_link_down_reroute": [
        "H1-leaf1 H2-leaf1 leaf1-spine1 leaf1-spine2 leaf1-spine4 leaf2-spine4",
        "H2-leaf1 H3-leaf2 leaf1-spine1",
        "H3-leaf2 leaf1-spine1 leaf2-spine3",
    ],
    "r09_packet_spray_h1": [
        "H4-leaf2 leaf1-spine1",
        "leaf1-spine2 leaf2-spine2",
        "leaf1-spine3 leaf1-spine4",
        "H1-leaf1 H4-leaf2 leaf2-spine1",
        "H2-leaf1 leaf1-spine3 leaf2-spine1 leaf2-spine2",
        "H3-leaf2 H4-leaf2 leaf1-spine2 leaf1-spine4",
        "H3-leaf2 leaf1-spine3 leaf1-spine4",
    ],
}
"""Flows that move from or to paths without a tap, and sprayed flows seen in part."""


def taps_of(run):
    found = sorted((DATA / "whole_leafspine" / run).glob("*.pcap.xz"))
    assert len(found) == 12
    return found


def diagnosis_of(taps):
    return analyze([str(tap) for tap in taps], AnalyzeOptions()).diagnosis


def agrees(run, taps):
    """No finding of severity warning or above contradicts the truth."""
    for finding in diagnosis_of(taps).findings:
        if finding.severity == "note":
            continue
        assert finding.kind in FOUND[run], finding.sentence
        if finding.kind in LOSSES:
            assert finding.packets <= LOST[run], finding.sentence
            if finding.place.device is not None and finding.kind != "link-down":
                assert finding.place.device == "spine2", finding.sentence


@pytest.mark.thorough
@pytest.mark.parametrize("run", MISLED)
def test_all_twelve_taps_have_exactly_the_fault(run):
    (found,) = [f for f in diagnosis_of(taps_of(run)).findings if f.severity != "note"]
    kind = "link-down" if run.startswith("r03") else "rate-limit"
    assert (found.kind, found.packets, found.place.device) == (kind, LOST[run], "spine2")


@pytest.mark.parametrize("run", MISLED)
@pytest.mark.parametrize("left_out", first(2, range(12)))
def test_one_tap_left_out(run, left_out):
    """Every lost packet is found, after a tap before spine2 and before one after it, if any.

    Without leaf2-spine2 four ACKs of r03 are unknown: the next tap is silent from then on.
    """
    taps = taps_of(run)
    left = taps[:left_out] + taps[left_out + 1 :]
    agrees(run, left)
    losses = [f for f in diagnosis_of(left).findings if f.kind in LOSSES and f.severity != "note"]
    unknown = 4 if taps[left_out].name.startswith("leaf2-spine2") and run.startswith("r03") else 0
    packets = sum(loss.packets for loss in losses)
    if unknown:  # two findings on both sides of the missing tap may count a few packets twice
        assert LOST[run] - unknown <= packets <= LOST[run] + unknown
    else:
        assert packets == LOST[run]
    last, following = WAY[run]
    for loss in losses:
        before, after = (
            None if tap is None else Path(tap).name.split(".")[0]
            for tap in (loss.place.from_tap, loss.place.to_tap)
        )
        assert after in (None, following)
        if unknown and before is None:
            continue  # a link that flows left names the link alone
        assert before == last or (taps[left_out].name.startswith(last) and before.startswith("H"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("run", "names"), [(run, names) for run, some in MISLED.items() for names in some]
)
def test_flows_that_leave_the_taps_are_no_losses(run, names):
    agrees(run, [tap for tap in taps_of(run) if tap.name.split(".")[0] in names.split()])


def test_a_sprayed_flow_may_retransmit_on_a_way_without_a_tap():
    """A packet of H1 is lost in spine2, and its retransmission passes another spine."""
    way = WAY["r09_packet_spray_h1"]
    taps = [tap for tap in taps_of("r09_packet_spray_h1") if tap.name.split(".")[0] in way]
    (loss,) = [f for f in diagnosis_of(taps).findings if f.kind in LOSSES]
    assert (loss.kind, loss.packets, loss.place.device) == ("rate-limit", 609, "spine2")


@pytest.mark.parametrize(
    "names",
    [
        "H2-leaf1 H3-leaf2 H4-leaf2 leaf1-spine1 leaf2-spine3 leaf2-spine4",
        "H3-leaf2 H4-leaf2 leaf1-spine3 leaf1-spine4",
        "H3-leaf2 leaf1-spine3",
    ],
)
def test_late_packets_of_ways_without_a_tap_are_not_counted_as_lost(names):
    """H1 sprays to H3: 8 of its packets are lost, many more are late."""
    diagnosis = diagnosis_of(
        [tap for tap in taps_of("r09_packet_spray_h1") if tap.name.split(".")[0] in names.split()]
    )
    losses = [f for f in diagnosis.findings if f.kind in LOSSES]
    assert not [f for f in losses if any(victim.src == "10.1.1.10" for victim in f.affected)]
    assert any("with late packets, in part over paths without a tap" in x for x in diagnosis.limits)
    assert any(f.kind == "reordering" and f.severity != "note" for f in diagnosis.findings)


@pytest.mark.thorough
@pytest.mark.parametrize("run", MISLED)
@pytest.mark.parametrize("seed", [*range(5), *thorough(range(5, 15))])
def test_several_taps_left_out(run, seed):
    draw = random.Random(f"{run} {seed}")
    taps = taps_of(run)
    agrees(run, sorted(draw.sample(taps, draw.randrange(1, 11))))
