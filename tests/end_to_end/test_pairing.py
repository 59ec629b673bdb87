"""Captures whose queue pairs are hard to pair: one port and one first PSN; few packets."""

from __future__ import annotations

import numpy as np
import pytest
from captures import DATA
from cases import case_of
from traffic import ACK, NAK_SEQUENCE_ERROR, READ_ONLY, READ_REQUEST, START_NS, packets

from rocescope.analyzer.decode.control import CmMessage
from rocescope.analyzer.diagnosis import diagnose
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.packets import ACK_REQUEST
from rocescope.report.verdicts import latency

CASES = DATA / "cases"
FIRST, LAST, ONLY = 6, 8, 10


@pytest.mark.parametrize(
    ("name", "connections", "naks", "resent"),
    [("p1_one_port_8qp", 8, 2, 10), ("p1_asym_8qp", 8, 1, 5)],
)
def test_one_port_and_one_first_psn(name, connections, naks, resent):
    """Losses after the tap are found, with the queue pair that they hit."""
    result = analyze([str(CASES / f"{name}.pcap.gz")], AnalyzeOptions())
    assert len(result.connections) == connections
    for pair in result.connections:
        assert pair.a_qp - 0x11A == (pair.b_qp - 0x23C) / 3
    (finding,) = result.diagnosis.findings
    assert (finding.kind, finding.packets, finding.severity) == ("loss", naks, "warning")
    (victim,) = (flow for flow in result.flows if flow.retransmitted_packets)
    assert finding.flows == [victim.id]
    assert victim.retransmitted_packets == resent
    assert victim.recovery.naks == {"PSN sequence error": naks}
    assert victim.recovery.retransmitted_by == {"nak": resent}
    text = latency(result)
    assert "unknown" not in text and "never acknowledged" not in text
    assert not any("paired" in limit for limit in result.diagnosis.limits)


def in_lockstep(queue_pairs, rounds=30, nak_at=None):
    """Queue pairs that send the same at the same times; one NAK, whose sender is not seen to
    react."""
    rows = []
    for n in range(rounds):
        for packet, opcode in enumerate((FIRST, LAST)):
            for k in range(queue_pairs):
                row = {"dest_qp": 0x200 + k, "psn": 2 * n + packet, "opcode": opcode}
                rows.append(row | {"bth_flags": ACK_REQUEST * packet})
        for k in range(queue_pairs):
            row = {"answer": True, "dest_qp": 0x100 + k, "psn": 2 * n + 1, "opcode": ACK}
            nak = nak_at == n and k == 1
            row |= {"psn": 2 * n, "syndrome": NAK_SEQUENCE_ERROR} if nak else {"syndrome": 0x1F}
            rows.append(row)
    return rows


@pytest.mark.parametrize("queue_pairs", [2, 5])
def test_what_cannot_be_paired_is_told(queue_pairs):
    case = case_of(in_lockstep(queue_pairs))
    assert not case.peers
    (limit,) = (limit for limit in diagnose.limits(case) if "could not be paired" in limit)
    assert limit.startswith(f"{queue_pairs} queue pairs between 10.0.0.1 and 10.0.0.2")
    assert diagnose.diagnose(case).findings == []
    for flow in case.flows:
        told = [note for note in flow.notes if "goodput is unknown" in note]
        assert all(note.startswith("which answers between the hosts") for note in told)


def test_a_nak_proves_a_loss_without_a_pair():
    case = case_of(in_lockstep(3, nak_at=12))
    assert not case.peers
    (finding,) = diagnose.diagnose(case).findings
    assert (finding.kind, finding.packets, finding.place.host) == ("loss", 1, "10.0.0.2")
    assert finding.sentence.startswith("at least 1 of 180 packets from 10.0.0.1 to 10.0.0.2 are")
    assert finding.evidence


def test_a_nak_before_the_pair_is_known_is_not_forgotten():
    """Live batches are small: the NAK comes first, then the queue pairs part and are paired."""
    rows = in_lockstep(2, nak_at=4)
    for n in range(30, 60):
        for k, psn in enumerate((2 * n, 3 * n)):
            row = {"dest_qp": 0x200 + k, "psn": psn + 1, "opcode": ONLY}
            rows.append(row | {"bth_flags": ACK_REQUEST})
            row = {"answer": True, "dest_qp": 0x100 + k, "psn": psn + 1}
            rows.append(row | {"opcode": ACK, "syndrome": 0x1F})
    measuring, table = Measuring(1_000_000, many_taps=False), packets(rows)
    for first in range(0, len(table), 8):
        measuring.update(table.slice(first, min(first + 8, len(table))))
    assert (measuring.tracker.flows["peer"] >= 0).all()
    assert measuring.tracker.flows["early_naks"].sum() == 1


def test_a_sender_whose_answers_are_unknown_is_not_dead():
    """Both went back; the answers are those of one of them or the other."""
    rows = in_lockstep(2)
    again = [row | {"time_ns": START_NS + 500_000 + i} for i, row in enumerate(rows[-6:])]
    late = {"time_ns": START_NS + 9_000_000_000, "dest_qp": 0x900, "opcode": ONLY, "psn": 5}
    case = case_of(table=packets([*rows, *again, late | {"src": 2, "dst": 3}]))
    sentences = [finding.sentence for finding in diagnose.diagnose(case).findings]
    assert sentences and not any("dead" in text or "at no tap" in text for text in sentences)


# Sessions that CM opens and closes within a few packets.


def test_a_short_session_is_answered_and_timed():
    path = str(CASES / "short_cm_session.pcap.gz")
    result = analyze([path], AnalyzeOptions(conformance=ConformanceOptions()))
    (pair,) = result.connections
    assert (pair.a_qp, pair.b_qp) in ((0x42, 0x31), (0x31, 0x42))
    assert "cm" in pair.evidence
    (asking,) = (f for f in result.flows if f.request_packets and f.transport == "RC")
    done, times = asking.message_statistics.completion_ns, asking.latency
    assert (done.count, done.min, done.max) == (2, 17_000, 19_000)
    assert times.request_to_ack_ns.max == 17_000
    assert times.read_to_first_response_ns.max == 15_000
    assert "never acknowledged" not in latency(result) and "not captured" not in latency(result)
    assert asking.goodput_bits_per_second
    assert not any(rule.violations for rule in result.conformance.rules)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("sessions", [1, 4])
def test_many_short_sessions(sessions, batch):
    """One WRITE and one READ each, the first PSNs all alike; CM messages come with the batch or
    before."""
    rows, messages = [], []
    for n in range(sessions):
        at, active, passive = START_NS + n * 100_000, 0x31 + n, 0x142 + n
        common = {"local_comm_id": n + 1, "starting_psn": 7}
        messages.append(CmMessage(at, 1, 0, 0, 1, "REQ", n, qpn=active, **common))
        reply = {"remote_comm_id": n + 1, "qpn": passive, **common}
        messages.append(CmMessage(at, 2, 0, 1, 0, "REP", n, **reply))
        asks = {"dest_qp": passive, "bth_flags": ACK_REQUEST}
        answers = {"answer": True, "dest_qp": active}
        read = {"opcode": READ_REQUEST, "payload_bytes": 0, "dma_length": 500}
        rows += [
            asks | {"psn": 7, "opcode": ONLY, "time_ns": at + 1000},
            answers | {"psn": 7, "opcode": ACK, "syndrome": 0x1F, "time_ns": at + 18_000},
            asks | read | {"psn": 8, "time_ns": at + 20_000},
            answers | {"psn": 8, "opcode": READ_ONLY, "time_ns": at + 35_000},
        ]
    table, measuring = packets(rows), Measuring(1_000_000, many_taps=False)
    for first in range(0, len(rows), batch):
        measuring.update(table.slice(first, min(first + batch, len(rows))), messages)
        messages = []
    flows = measuring.tracker.flows
    for flow in flows:
        assert abs(int(flow["dest_qp"]) - int(flows[flow["peer"]]["dest_qp"])) == 0x111
    for f in np.flatnonzero(flows["request_packets"]).tolist():
        assert measuring.messages.messages(f).completion_ns.count == 2
        assert measuring.messages.latency(f).read_to_first_response_ns.max == 15_000
