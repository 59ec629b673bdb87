"""Claims, and when they are withdrawn."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import capture, case_of, table_of
from conformance_traces import NAK, answer, last, response, write
from factories_results import diagnosis, hop

from rocescope.analyzer.diagnosis.diagnose import healthy
from rocescope.analyzer.measures.hops.hops import TapHop, TapHops
from rocescope.analyzer.measures.hops.state import VISIT
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import Ended
from rocescope.commands.generate import generate_mrc

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
