"""Who answers whom when much fits, and what READs without a known path MTU prove."""

from __future__ import annotations

import pytest
from traffic import ACK, READ_ONLY, READ_REQUEST, WRITE_MIDDLE, WRITE_ONLY, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import IN_ORDER
from rocescope.analyzer.track.connections import CmPairs, settle
from rocescope.analyzer.track.tracker import FlowTracker


def tracked(rows):
    tracker = FlowTracker()
    return tracker, track(tracker, packets(rows)).tolist()


def write(psn, qp=0x11):
    return {"psn": psn, "opcode": WRITE_ONLY, "dest_qp": qp}


def ack(psn, qp=0x12):
    return {"answer": True, "psn": psn, "opcode": ACK, "syndrome": 0x1F, "dest_qp": qp}


def partners(tracker):
    """{destination QPN: destination QPN of the peer}"""
    flows = tracker.flows
    return {int(f["dest_qp"]): int(flows[f["peer"]]["dest_qp"]) for f in flows if f["peer"] >= 0}


def test_the_slower_queue_pair_is_not_taken_for_the_one_that_answers():
    """NCCL begins all queue pairs at PSN 0; ACKs lag behind by more than is remembered."""
    rows = [write(p, qp) for p in range(1000) for qp in (0x21, 0x22)]
    rows += [write(p, 0x22) for p in range(1000, 1300)]  # 0x21 stalls
    rows += [ack(p, 0x32) for p in range(900, 1000, 8)]  # of the other one
    tracker, _ = tracked(rows)
    assert partners(tracker) in ({}, {0x22: 0x32, 0x32: 0x22})
    more = [ack(p, 0x32) for p in range(1000, 1300, 8)]
    tracker, _ = tracked(rows + more)
    assert partners(tracker) == {0x22: 0x32, 0x32: 0x22}


def test_a_queue_pair_number_used_again_finds_its_new_partner():
    """QP 0x12 is taken down and made anew, now connected with QP 0x15."""
    rows = [row for p in range(40) for row in (write(p), ack(p))]
    rows += [row for p in range(5_000_000, 5_000_200) for row in (write(p, 0x15), ack(p))]
    tracker, _ = tracked(rows)
    assert partners(tracker) == {0x15: 0x12, 0x12: 0x15}


def test_responses_acknowledge_what_was_sent_before_the_read():
    """A WRITE this tap missed, then a READ that is answered: the WRITE has arrived."""
    rows = [row for p in range(10) for row in (write(p), ack(p))]
    rows += [{"psn": 11, "opcode": READ_REQUEST, "dma_length": 100, "payload_bytes": 0}]
    rows += [{"answer": True, "psn": 11, "opcode": READ_ONLY, "payload_bytes": 100}]
    tracker, _ = tracked(rows)
    assert tracker.missing(0, state.REQUESTS) == (1, 1)


@pytest.mark.parametrize("theirs", [256, 4096])
@pytest.mark.parametrize("mtu", [1024, 2048])
def test_the_path_mtu_of_other_queue_pairs_proves_no_loss(theirs, mtu):
    """Only requests are captured, and between the hosts another QP uses another path MTU."""
    rows = [
        {"psn": p, "dest_qp": 0x99, "opcode": WRITE_MIDDLE, "payload_bytes": theirs}
        for p in range(5)
    ]
    rows += [
        {"psn": 65536 // mtu * i, "opcode": READ_REQUEST, "dma_length": 65536, "payload_bytes": 0}
        for i in range(50)
    ]
    tracker, found = tracked(rows)
    assert found == [IN_ORDER] * 55
    assert [tracker.missing(f, state.REQUESTS) for f in range(2)] == [(0, 0)] * 2


def test_missing_responses_are_not_acknowledged_by_what_acknowledges_requests():
    """Given up, they must not become suspected capture loss: ACKs of A's requests name other PSNs.

    A's responses 100 to 139 are lost, then so many more follow that their slots are needed.
    """
    rows = [row for p in range(200_000, 200_010) for row in (write(p), ack(p))]
    length = 1 << 31
    rows += [{"answer": True, "psn": 100, "opcode": READ_REQUEST, "dma_length": length}]
    lone = {"opcode": 0x0E, "payload_bytes": 1024}
    rows += [{"psn": p} | lone for p in (100, 141)]
    rows += [{"psn": p} | lone for p in range(142, 142 + state.MAX_WINDOW + 200)]
    tracker, _ = tracked(rows)
    assert tracker.stream(0, state.RESPONSES)["missing_evicted"] == 40
    assert tracker.missing(0, state.RESPONSES) == (40, 0)


def test_a_pair_dissolved_while_the_analysis_goes_on_may_be_found_again():
    """Four stray answers of seven; what comes then is beyond doubt."""
    rows = [row for p in range(3) for row in (write(p), ack(p))] + [ack(5000 + p) for p in range(4)]
    tracker, _ = tracked(rows)
    settle(tracker, CmPairs())
    assert partners(tracker) == {}
    track(tracker, packets([row for p in range(3, 13) for row in (write(p), ack(p))]))
    settle(tracker, CmPairs())
    assert partners(tracker) == {0x11: 0x12, 0x12: 0x11}
