"""Whole diagnoses: real captures with what is known of them, clean traffic, order of files."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from captures import DATA, data
from cases import capture, case_of, table_of
from conformance_traces import NAK, answer, last, read, response, traffic, write
from examples import examples
from factories_results import diagnosis, hop
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis import diagnose
from rocescope.analyzer.diagnosis.diagnose import (
    MOST_ALIKE,
    bounded,
    healthy,
    limits,
    rank,
    summary,
)
from rocescope.analyzer.measures.hops.hops import TapHop, TapHops
from rocescope.analyzer.measures.hops.state import VISIT
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import CaptureGap, Ended, Pause, Sampling
from rocescope.analyzer.results.diagnosis import Place
from rocescope.commands.generate import generate, generate_mrc

# Whole diagnoses: real captures with what is known of them, clean traffic, order of files.

A, B = "10.0.0.1", "10.0.0.2"
C40 = [  # three SENDs without a buffer in time, two wrong keys, one refusal, two dead receivers
    ("stalled", "critical", {"from_tap": 1, "direction": "after the tap", "host": B}, 12),
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
        ("timeout-recovery", "warning", {"from_tap": 1, "direction": "after the tap"}, 48)
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


# What captures cannot tell.

ROWS = [write(0), last(1), answer(1)]


def said(rows=ROWS, **changes):
    return " | ".join(limits(case_of(rows, **changes)))


def with_tap(**changes):
    one = capture(table_of(ROWS))
    tap = msgspec.structs.replace(one.taps[0], **changes)
    return [msgspec.structs.replace(one, taps=[tap])]


def test_one_tap_without_icrc():
    assert "one tap: loss after it" in said()
    assert "ICRCs were not checked (analyze FILE --icrc)" in said()
    live = msgspec.structs.replace(capture(table_of(ROWS)), format="live")
    assert "ICRCs were not checked (analyze FILE --icrc checks those" in said(captures=[live])
    assert "not state dropped frames" not in said()


def test_drops_of_the_capture():
    assert "tap dropped 3 frames itself" in said(captures=with_tap(dropped_frames=3))
    assert "does not state dropped frames" in said(captures=with_tap(dropped_frames=None))


def test_packets_whose_way_is_known_in_part():
    ways = TapHops([], [], np.zeros(0, VISIT), 1, 0, 0, 3, 0, 2, [], {}, ["1 of 2 taps"], 1)
    assert "3 packets that a tap could not see" in said(tap_hops=ways)
    assert "2 packets tracked for a short time only" in said(tap_hops=ways)
    assert "1 of 2 taps" in said(tap_hops=ways)
    assert "1 lost or retransmitted packet without an exact time" in said(tap_hops=ways)


def test_taps_that_no_packet_passes_one_after_the_other():
    alone = TapHops([], [], np.zeros(0, VISIT), 1, 0, 0, 0, 0, 0, [], {}, (), 0)
    text = "no packet was seen at two of the 2 taps"
    taps = [msgspec.structs.replace(capture(table_of(ROWS)), name=name) for name in ("a", "b")]
    assert text in said(tap_hops=alone, captures=taps)
    assert text not in said(tap_hops=alone)
    assert text not in said(captures=taps)
    flows = case_of(ROWS).flows
    sprayed = [msgspec.structs.replace(flow, taps={"a": 1, "b": 1}) for flow in flows]
    assert text in said(tap_hops=alone, captures=taps, flows=sprayed)
    both = [msgspec.structs.replace(flow, tap_copies=1) for flow in flows]
    assert text not in said(tap_hops=alone, captures=taps, flows=both)


def test_samples():
    sampling = Sampling(one_in=100, estimated_packets=1, estimated_wire_bytes=1, error_percent=1)
    assert "samples only" in said(captures=with_tap(sampling=sampling))


def test_truncated_frames():
    cut = [capture(table_of(ROWS), icrc={"ok": 1, "bad": 0, "truncated": 2})]
    assert "2 frames are truncated" in said(captures=cut)


@pytest.mark.parametrize(
    ("priorities", "option"),
    [({}, " (--dscp-priority)"), ({26: 3}, " (--dscp-priority)"), (None, "")],
)
def test_the_option_for_priorities_is_named_where_the_analysis_has_it(priorities, option):
    paused = with_tap(pauses=[Pause(3, 1, 0, 9, 10.0, 10, 60)])
    told = said(captures=paused, dscp_priority=priorities)
    assert f"the priority of DSCP 0 in the switches is unknown{option}: DSCP / 8 decides" in told


def test_how_it_was_read():
    assert said(complete=False).startswith("incomplete")
    cut = [capture(table_of(ROWS), damaged_places=1)]
    assert "cannot be read in full" in said(captures=cut)
    ring = [capture(table_of(ROWS), damaged_places=1, gaps=[CaptureGap(1, 2, "x is cut short")])]
    assert "cannot be read in full" not in said(captures=ring)  # the gap tells more


def test_a_filter_of_the_analysis():
    case = case_of(ROWS, filtered=True)
    case.measuring.filtered = True
    assert limits(case)[0].startswith("a filter is set")
    case.registry.taps[0].filter = "qp == 0x11"
    assert limits(case)[0].startswith("captured with a filter (qp == 0x11)")
    assert limits(case)[1].startswith("a filter is set")


def test_a_filter_of_the_capture_is_named():
    case = case_of(ROWS, filtered=True)
    case.registry.taps[0].filter = "udp dst port 4791"
    assert not any("filter" in line for line in limits(case))
    case.registry.taps[0].filter = "qp == 0x11"
    assert limits(case)[0] == (
        "captured with a filter (qp == 0x11): packets outside it are not counted, and their "
        "loss is unknown"
    )
    assert not any("a filter is set" in line for line in limits(case))


def test_one_direction():
    assert "1 flow without any packet of the other direction" in said(ROWS[:2])
    assert "other direction" not in said()


def test_names_are_plain():
    assert "\x1b" not in said(captures=with_tap(name="a\x1bb", dropped_frames=1))


def test_nothing_to_limit():
    assert limits(case_of([])) == []


def test_what_is_unknown_of_flows_that_left():
    case = case_of(ROWS)
    case.measuring.ended = Ended(
        flows=9, partial_flows=1, untapped_flows=2, unknown_between_taps=465, missed_by_captures=3
    )
    found = " | ".join(limits(case))
    assert "1 flow seen only in part" in found
    assert "2 flows on paths without a tap" in found
    assert "465 packets of flows that were removed from memory, which the next tap did not" in found
    assert "3 packets of flows that were removed from memory are missing in the capture" in found


def test_of_one_severity_findings_with_a_place_come_first():
    def made(severity, cost_ns, **place):
        changes = {"severity": severity, "cost_ns": cost_ns, "place": Place(**place)}
        return msgspec.structs.replace(LOSS, **changes)

    worst = made("critical", 1, direction="after the tap")
    placed = made("warning", 1, device="spine2")
    costly = made("warning", 9, direction="after the tap")
    assert sorted([costly, placed, worst], key=rank) == [worst, placed, costly]


# Claims, and when they are withdrawn.

CLEAN = [write(0), last(1), answer(1), write(2), last(3), answer(3)]


def test_claims_say_what_they_cover():
    assert healthy(case_of(CLEAN), []) == [
        "4 request and response packets: none lost, retransmitted, reordered or duplicated"
        " before the tap, from the first captured packet of each flow on",
        "2 ACKs: no NAK, no RNR NAK",
        "1 queue pair: none stalled",
    ]


@pytest.mark.parametrize(
    ("first_psn", "rows", "claimed"),
    [
        (0, CLEAN, " before the tap"),
        (1, CLEAN, " before the tap, from the first captured packet of each flow on"),
        (None, CLEAN, " before the tap, from the first captured packet of each flow on"),
        (
            0,
            [*CLEAN, response(4)],
            " before the tap, from the first captured packet of each flow on",
        ),
    ],
    ids=["agreed", "another sequence", "no CM", "responses"],
)
def test_no_loss_is_claimed_before_the_first_packet_unless_cm_names_its_psn(
    first_psn, rows, claimed
):
    case = case_of(rows)
    if first_psn is not None:
        flow = case.measuring.tracker.flows[0]
        key = int(flow["src"]), int(flow["dst"]), int(flow["dest_qp"])
        case.measuring.cm.first_psns[key] = first_psn
    assert healthy(case, [])[0].partition("duplicated")[2] == claimed
    case.measuring.ended = Ended(flows=1, request_packets=9, sequenced_packets=9)
    assert healthy(case, [])[0].endswith("from the first captured packet of each flow on")


def test_each_fault_withdraws_its_claim():
    lossy = [write(0), last(1), answer(1), last(3), answer(2, NAK), write(2, ip_id=90, at=99)]
    claims = " ".join(healthy(case_of(lossy), []))
    assert "none reordered or duplicated" in claims
    assert "NAK" not in claims
    loss = diagnosis().findings[0]
    assert "lost" not in " ".join(healthy(case_of(CLEAN), [loss]))
    late = msgspec.structs.replace(loss, kind="reordering")
    assert "reordered" not in " ".join(healthy(case_of(CLEAN), [late]))


def test_flows_that_left_in_trouble_withdraw_claims():
    """A flow of which the tap saw only a part has no count of losses."""
    case = case_of([row | {"traffic_class": 2} for row in CLEAN])
    case.measuring.ended = Ended(flows=1, flows_in_trouble=1, marked_between_taps=1)
    claims = " ".join(healthy(case, []))
    assert "none retransmitted, reordered or duplicated" in claims
    assert "lost" not in claims and "stalled" not in claims and "CE" not in claims


def test_packets_without_an_order_that_left_are_in_no_claim():
    case = case_of(CLEAN)
    case.measuring.ended = Ended(flows=2, request_packets=90, sequenced_packets=30)
    assert healthy(case, [])[0].startswith("34 request and response packets: none lost")


def test_flows_seen_in_part_that_left_withdraw_the_claim_about_psns():
    case = case_of(CLEAN)
    case.measuring.ended = Ended(flows=2, request_packets=9, sequenced_packets=9, partial_flows=1)
    assert not any("lost" in claim or "reordered" in claim for claim in healthy(case, []))


def test_a_filter_withdraws_all():
    assert healthy(case_of(CLEAN, filtered=True), []) == []


def test_marks_need_packets_that_can_be_marked():
    capable = [row | {"traffic_class": 2} for row in CLEAN]
    assert "6 ECN-capable packets: none marked CE" in healthy(case_of(capable), [])
    marked = [row | {"traffic_class": 3} for row in CLEAN]
    assert not any("CE" in claim for claim in healthy(case_of(marked), []))


def test_checked_icrcs():
    table = table_of(CLEAN)
    good = capture(table, icrc={"ok": 6, "bad": 0, "truncated": 0})
    assert "6 ICRCs: none wrong" in healthy(case_of(CLEAN, captures=[good]), [])
    bad = capture(table, icrc={"ok": 5, "bad": 1, "truncated": 0})
    assert not any("ICRC" in claim for claim in healthy(case_of(CLEAN, captures=[bad]), []))
    none = capture(table, icrc={"ok": 0, "bad": 0, "truncated": 6})
    assert not any("ICRC" in claim for claim in healthy(case_of(CLEAN, captures=[none]), []))


def test_one_direction_is_no_proof_of_life():
    assert not any("stalled" in claim for claim in healthy(case_of(CLEAN[:2]), []))


def test_queue_pairs_whose_answers_may_pass_no_tap_are_not_claimed_to_live():
    """The sender goes back to a later packet without an answer at the tap."""
    waits = [write(0, at=0), write(1, at=1), last(2, at=2)]
    waits += [last(2, at=60_000 * n, ip_id=90 + n) for n in (1, 2, 3)]
    lives = [row | {"dest_qp": 0x21, "udp_sport": 50_000} for row in waits[:3]]

    def claims(rows, pairs):
        case = case_of(rows)
        peers = {flow: peer for pair in pairs for flow, peer in (pair, pair[::-1])}
        case.__dict__["peers"] = peers  # connected by CM messages
        return [claim for claim in healthy(case, []) if "stalled" in claim]

    assert claims(waits, [(0, 9)]) == []
    assert claims([*waits, *lives], [(0, 9), (1, 8)]) == ["1 queue pair: none stalled"]


def not_stalled(case):
    return [claim for claim in healthy(case, []) if "stalled" in claim]


def test_every_queue_pair_of_a_clean_job_is_said_to_live(data):
    """A real run; many of its queue pairs pause for more than a second."""
    captures = sorted((data / "leafspine" / "r01_clean_write").glob("*.pcap.gz"))
    result = analyze(list(map(str, captures)), AnalyzeOptions())
    assert "48 queue pairs: none stalled" in result.diagnosis.healthy


LONG_US = 1_100_000


def test_a_queue_pair_with_nothing_to_send_does_not_wait():
    """Between its messages, before the capture ends, and while it only answers."""
    rows = [
        row for n in range(2) for row in (whole(n, at=LONG_US * n), answer(n, at=LONG_US * n + 1))
    ]
    assert not_stalled(case_of([*rows, *another_goes_on()])) == ["2 queue pairs: none stalled"]


@pytest.mark.parametrize(("later_us", "claimed"), [(900_000, True), (LONG_US, False)])
def test_a_queue_pair_whose_answer_came_late_has_no_tick(later_us, claimed):
    rows = [write(0, at=0), last(1, at=1), answer(1, at=later_us)]
    assert not_stalled(case_of(rows)) == ["1 queue pair: none stalled"] * claimed


def test_a_queue_pair_that_waited_for_a_timeout_has_no_tick():
    assert not not_stalled(
        case_of([last(1, at=0), last(1, at=5_000, ip_id=77), answer(1, at=5_001)])
    )


def test_a_queue_pair_that_fell_silent_within_a_message_has_no_tick():
    gone = [write(0, at=0), last(1, at=1), answer(1, at=2), write(2, at=3)]
    assert not_stalled(case_of([*gone, *another_goes_on()])) == ["1 queue pair: none stalled"]


@pytest.mark.parametrize(("responses", "claimed"), [(2, 1), (3, 2)])
def test_a_read_that_got_a_part_of_its_data_has_no_tick(responses, claimed):
    codes = (traffic.READ_FIRST, traffic.READ_MIDDLE, traffic.READ_LAST)[:responses]
    rows = [read(0, 3072, at=0), *(response(n, code, at=n + 1) for n, code in enumerate(codes))]
    found = not_stalled(case_of([*rows, *another_goes_on()]))
    assert found == [f"{claimed} queue pair{'s' * (claimed > 1)}: none stalled"]


def test_a_queue_pair_that_failed_as_a_log_says_has_no_tick():
    rows = [write(0, at=0), last(1, at=1), answer(1, at=2), *another_goes_on()]
    assert not_stalled(case_of(rows, failed_in_logs={0})) == ["1 queue pair: none stalled"]


def whole(psn, **more):
    """A message of one packet."""
    return last(psn, **more) | {"opcode": traffic.SEND_ONLY}


def another_goes_on():
    """A second queue pair that is answered for more than a second."""
    more = {"src": 2, "dst": 3, "dest_qp": 0x21}, {"src": 3, "dst": 2, "dest_qp": 0x22}
    return [
        row | more[row["opcode"] == answer(0)["opcode"]]
        for n in range(5)
        for row in (last(n, at=400_000 * n), answer(n, at=400_000 * n + 1))
    ]


def test_packets_on_ways_without_a_tap_withdraw_the_claim_of_the_hops():
    one = hop(lost_packets=0, lost_percent=0.0, lost_by_flow=[], passed_packets=100)
    for left, claimed in ((0, True), (1, False)):
        ways = TapHops([TapHop(1, 2)], [], np.zeros(0, VISIT), 0, 0, 0, 0, 0, 0, [], {}, left=left)
        claims = healthy(case_of(CLEAN, hops=[one], tap_hops=ways), [])
        assert ("1 hop, 100 packet hops: no loss" in claims) == claimed


@pytest.mark.parametrize("trim", [0.0, 0.02])
def test_receivers_of_mrc_that_ask_for_trimmed_packets_are_not_called_without_naks(trim, tmp_path):
    path = tmp_path / "mrc.pcap"
    generate_mrc(output=path, messages=2, trim=trim)
    claims = analyze([str(path)], AnalyzeOptions()).diagnosis.healthy
    assert any("no NAK" in claim for claim in claims) == (not trim)
