"""Whole diagnoses: real captures with what is known of them, clean traffic, order of files."""

from __future__ import annotations

import random

import msgspec
import pytest
from captures import DATA, data
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.commands.replay.generate import generate

A, B = "10.0.0.1", "10.0.0.2"
C40 = [  # three SENDs without a buffer in time, two wrong keys, one refusal, two dead receivers
    ("stalled", "critical", {"host": B}, 12),
    ("receiver-not-ready", "critical", {"host": B}, 35),
    ("fatal-nak", "critical", {"host": B}, 2),
    ("fatal-nak", "critical", {"host": B}, 1),
]
KNOWN = {
    "c04_rc_read": [],
    "c05_rc_atomic": [],
    "c07_ud_send": [],
    "c08_uc_write": [],
    "c10_rping": [],
    "c13_rc_write": [],
    "c15_rc_write": [],
    "c16_rc_write": [],
    "c23_rc_write": [],
    "c40_rc_oddities": C40,
    "i01_write_loss0.5_AtoB.atA": [
        ("loss", "critical", {"from_tap": 1, "direction": "after the tap", "host": B}, 126)
    ],
    "i01_write_loss0.5_AtoB.atB": [
        ("loss", "critical", {"to_tap": 1, "direction": "before the tap", "host": A}, 180)
    ],
    "i03_write_reorder5": [
        ("reordering", "warning", {"to_tap": 1, "direction": "before the tap", "host": A}, 982)
    ],
    "i04_write_duplicate1": [
        ("duplication", "warning", {"to_tap": 1, "direction": "before the tap", "host": A}, 201)
    ],
    "i13_write_ecn_ce2": [
        ("ecn-marking", "warning", {"to_tap": 1, "direction": "before the tap", "host": B}, 443)
    ],
    "n05_rc_write_lat_timeouts": [
        ("timeout-recovery", "warning", {"direction": f"between {A} and {B}"}, 48)
    ],
    "h01_rxe_at_the_host": [
        ("timeout-recovery", "note", {"direction": f"between {A} and {B}", "host": B}, 7)
    ],
}
"""Findings by capture: kind, severity, place (1: the capture itself), packets. Packets are those
of the facts beside each capture: lost between the taps (i01), out of order, copied, marked."""


def diagnosed(paths, **options):
    return analyze([str(path) for path in paths], AnalyzeOptions(**options)).diagnosis


@pytest.mark.parametrize("name", KNOWN)
def test_real_captures_have_exactly_their_faults(name):
    path = data(name)
    found = []
    for finding in diagnosed([path]).findings:
        place = {k: v for k, v in msgspec.to_builtins(finding.place).items() if v is not None}
        for tap in ("from_tap", "to_tap"):
            if tap in place:
                place[tap] = int(place[tap] == path.name)
        found.append((finding.kind, finding.severity, place, finding.packets))
    assert found == KNOWN[name]


@pytest.mark.parametrize("name", KNOWN)
def test_every_finding_holds_together(name):
    diagnosis = diagnosed([data(name)])
    assert diagnosis.summary
    for finding in diagnosis.findings:
        assert finding.flows == sorted(a.flow for a in finding.affected)
        assert finding.from_ns <= (finding.until_ns or finding.from_ns)
        assert finding.packets == sum(a.packets for a in finding.affected)
        assert finding.share_low_percent <= finding.share_percent <= finding.share_high_percent
        assert 0 < len(finding.evidence) <= 20
        assert len(finding.sentence) <= 170
        assert finding.next_step


def test_evidence_names_frames_of_the_capture():
    """The NAKs of i01 at the sender, by tshark's frame numbers and syndromes in the facts."""
    finding = diagnosed([data("i01_write_loss0.5_AtoB.atA")]).findings[0]
    analysis = analyze([str(data("i01_write_loss0.5_AtoB.atA"))], AnalyzeOptions())
    naks = {(e.frame_number, e.time_ns) for e in analysis.events if e.kind == "nak"}
    assert {(e.frame_number, e.time_ns) for e in finding.evidence} <= naks


def test_a_clean_fabric_is_healthy():
    paths = sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap.*"))
    diagnosis = diagnosed(paths)
    assert [f for f in diagnosis.findings if f.severity != "note"] == []
    assert "No fault found" in diagnosis.summary
    assert any("no loss" in claim for claim in diagnosis.healthy)


@pytest.mark.thorough
def test_the_order_of_the_files_does_not_matter():
    paths = [data("i01_write_loss0.5_AtoB.atA"), data("i01_write_loss0.5_AtoB.atB")]

    def faults(paths):
        return [
            (f.kind, f.severity, f.place, f.packets, f.from_ns, f.until_ns, f.sentence)
            for f in diagnosed(paths).findings
            if f.kind != "clock"  # which clock is the reference depends on the order
        ]

    assert faults(paths) == faults(paths[::-1])
    fabric = sorted((DATA / "leafspine" / "r09_packet_spray_h1").glob("*.pcap.*"))
    mixed = fabric[:]
    random.Random(1).shuffle(mixed)
    assert faults(fabric) == faults(mixed)


def test_a_slow_path_seen_by_the_taps_after_it_is_one_finding():
    """Spine2 is slow: its queue overflows, delays sprayed packets, and makes ACKs late."""
    taps = sorted((DATA / "leafspine" / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
    found = diagnosed(taps).findings
    (one,) = (finding for finding in found if finding.severity != "note")
    assert (one.kind, one.place.to_tap, one.packets) == ("loss", "leaf2-spine2.pcap.gz", 359)
    assert one.details == {"slow_path": "leaf2-spine2.pcap.gz", "lost_retransmissions": 8}
    assert {(flow.src, flow.dst) for flow in one.affected} == {
        ("10.1.2.10", "10.2.4.10"),
        ("10.1.1.10", "10.2.3.10"),
    }


FABRIC = sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap.*"))


@examples(12)
@given(st.sets(st.sampled_from(FABRIC), min_size=1))
def test_links_without_a_tap_are_no_fault(taps):
    """What takes a way that nobody captures is not lost: it is never retransmitted."""
    diagnosis = diagnosed(sorted(taps))
    assert [f.sentence for f in diagnosis.findings if f.severity != "note"] == []


def test_links_without_a_tap_limit_the_diagnosis():
    names = ("H3-leaf2", "leaf1-spine1", "leaf1-spine2", "leaf2-spine1", "leaf2-spine3")
    taps = [path for path in FABRIC if path.name.startswith(names)]
    assert any("on paths without a tap" in limit for limit in diagnosed(taps).limits)


def test_a_filter_withdraws_all_claims():
    diagnosis = diagnosed([data("c10_rping")], filter="qp == 17")
    assert diagnosis.healthy == []
    assert any("filter" in limit for limit in diagnosis.limits)


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["permutation", "all-to-all", "ring-allreduce", "incast", "random"]),
    st.integers(1, 1000),
    st.sampled_from([{}, {"ipv6": True}, {"operation": "send"}, {"mtu": 1024}, {"qps": 3}]),
)
def test_generated_traffic_is_healthy(tmp_path, pattern, seed, options):
    path = tmp_path / "clean.pcap"
    sizes = {"hosts": 6, "message_size": "40KiB", "messages": 3, "flows": 20}
    assert generate(pattern, output=path, seed=seed, progress="none", **sizes, **options) == 0
    assert diagnosed([path]).findings == []
