"""Whole diagnoses: real captures with what is known of them, clean traffic, order of files."""

from __future__ import annotations

import random

import msgspec
import pytest
from captures import DATA, data
from cases import capture, case_of, table_of
from conformance_traces import answer, last, write
from examples import examples
from factories_results import diagnosis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis import diagnose
from rocescope.analyzer.diagnosis.diagnose import MOST_ALIKE, bounded, summary
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.results.diagnosis import Place
from rocescope.commands.generate import generate

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


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_registry_does_not_matter(monkeypatch, seed):
    paths = sorted((DATA / "lab_incast").glob("*.pcap.xz"))
    before = diagnosed(paths).findings
    finders = random.Random(seed).sample(diagnose.FINDERS, len(diagnose.FINDERS))
    monkeypatch.setattr(diagnose, "FINDERS", finders)
    after = diagnosed(paths).findings
    assert len(before) > 1
    assert sorted(map(repr, after)) == sorted(map(repr, before))


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


CASE = case_of([write(0), last(1), answer(1)])
LOSS, NOTE = diagnosis().findings


def losses(count):
    """Findings of 2 of 10 packets each, between eth0 and eth1, eth1 and eth2, ..."""
    return [
        msgspec.structs.replace(
            LOSS,
            place=Place(from_tap=f"eth{n}", to_tap=f"eth{n + 1}"),
            flows=[0],
            affected=[],
            packets=2,
            of_packets=10,
            from_ns=100 + n,
            until_ns=1000 + n,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, MOST_ALIKE])
def test_few_findings_stay(count):
    found = [*losses(count), NOTE]
    assert bounded(CASE, found) == found


@pytest.mark.parametrize("count", [MOST_ALIKE + 1, 2000])
def test_the_worst_stay_and_the_others_are_one(count):
    found = losses(count)
    kept = bounded(CASE, [*found, NOTE])
    assert kept[: MOST_ALIKE - 1] == found[: MOST_ALIKE - 1]
    *_, rest, note = kept
    assert len(kept) == MOST_ALIKE + 1 and note == NOTE
    left = count - MOST_ALIKE + 1
    assert (rest.kind, rest.severity, rest.place) == ("loss", LOSS.severity, Place())
    assert (rest.packets, rest.of_packets) == (2 * left, 10 * left)
    assert (rest.from_ns, rest.until_ns) == (100 + MOST_ALIKE - 1, 1000 + count - 1)
    assert rest.flows == [0]
    assert rest.details["findings"] == left
    assert "eth19 > eth20" in rest.sentence and f"loss at {left:,} more places" in rest.sentence
    assert len(rest.evidence) <= 20


def test_severities_are_counted_apart_and_one_that_goes_on_goes_on():
    found = losses(MOST_ALIKE)
    other = [msgspec.structs.replace(one, severity="note") for one in found]
    assert len(bounded(CASE, [*found, *other])) == 2 * MOST_ALIKE
    on = [msgspec.structs.replace(one, until_ns=None) for one in losses(MOST_ALIKE + 1)]
    assert bounded(CASE, on)[-1].until_ns is None


def test_the_worst_fault_comes_first():
    loss, note = diagnosis().findings
    case = case_of([last(0)])
    assert summary(case, [loss, note], ["x"]) == loss.sentence
    assert summary(case, [loss, loss, loss], []) == f"{loss.sentence} (and 2 further faults)"


@pytest.mark.parametrize(
    "changes",
    [{"complete": False}, {"captures": [capture(table_of([last(0)]), damaged_places=1)]}],
    ids=["interrupted", "damaged"],
)
def test_what_was_not_read_is_not_cleared(changes):
    case = case_of([last(0)], **changes)
    assert not case.is_whole
    said = summary(case, [], ["x"])
    assert said == "No fault found in the part that was read: 1 packet of 1 queue pair"


def test_notes_are_no_faults():
    note = diagnosis().findings[1]
    assert (
        summary(case_of([last(0)]), [note], ["x"]) == "No fault found in 1 packet of 1 queue pair"
    )


def test_nothing_checked_is_no_all_clear():
    assert summary(case_of([last(0)]), [], []).startswith("No check")
    assert summary(case_of([]), [], []) == "No RoCE packets: nothing was checked"


def test_ended_flows_in_trouble_are_no_all_clear():
    case = case_of([last(0)])
    case.measuring.ended = Ended(flows=3, queue_pairs=3, packets=9, flows_in_trouble=2)
    assert summary(case, [], ["x"]) == (
        "No fault found in the listed flows; 2 idle flows with anomalies removed from memory:"
        " 10 packets of 4 queue pairs"
    )
