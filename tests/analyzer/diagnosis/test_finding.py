"""One finding: share, severity, victims, sentence."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finding import MOST_EVIDENCE, cheap, finding, severity_of
from rocescope.analyzer.measures.troubles import NAK_SENT, Trouble
from rocescope.analyzer.results.diagnosis import Place

MS = 1000
LOSSY = [
    write(0, at=0),
    last(1, at=1),
    answer(1, at=9),
    write(2, at=10),
    last(3, at=20),
    answer(2, NAK, at=30),
    write(2, at=200, ip_id=90),
    last(3, at=201, ip_id=91),
    answer(3, at=220),
    last(4, at=1000),
    answer(4, at=1010),
]


def made(case, **options):
    span = case.first_ns + 30_000, case.first_ns + 30_000
    return finding(
        case, "loss", Place(host="10.0.0.2"), 5, "a packet was lost", "look",
        hits={0: 1}, span=span, **options,
    )  # fmt: skip


def test_victims_cost_and_sentence():
    case = case_of(LOSSY)
    one = made(case, seen=[case.measuring.troubles.of(1, NAK_SENT)])
    assert one.cost_ns == 170_000  # from the NAK to the retransmission
    assert one.sentence == "a packet was lost, at 30 us; 1 of 1 QP lost 170 us"
    assert (one.packets, one.of_packets, one.share_percent) == (1, 5, 20.0)
    assert one.share_low_percent == pytest.approx(3.62, abs=0.01)
    assert one.share_high_percent == pytest.approx(62.45, abs=0.01)
    assert [(e.tap, e.frame_number) for e in one.evidence] == [("tap", 6)]
    assert [(a.flow, a.dest_qp, a.packets, a.cost_ns) for a in one.affected] == [
        (0, 0x11, 1, 170_000)
    ]
    assert one.severity == "warning"
    assert made(case, costs=False).cost_ns == 0


def test_most_of_the_time_lost_is_critical():
    case = case_of(LOSSY[:-2])  # 170 of 220 us
    assert made(case).severity == "critical"
    assert severity_of(case, case.flows, 109_000) == "warning"


def test_a_dead_queue_pair_is_critical():
    case = case_of([*LOSSY, *(last(5, at=MS * n, ip_id=90 + n) for n in (2, 60, 120, 180))])
    one = made(case)
    assert one.severity == "critical"
    assert one.sentence.endswith("1 of 1 QP dead")


def test_what_costs_little():
    assert not cheap(case_of(LOSSY).flows)
    assert cheap(case_of([*LOSSY, last(5, at=30 * MS), answer(5, at=30 * MS + 9)]).flows)


def test_evidence_is_bounded():
    case = case_of(LOSSY)
    many = [Trouble(4, 0, 9, 0, [(time, time, 0) for time in range(4)], 0)] * 9
    assert len(made(case, seen=many).evidence) == MOST_EVIDENCE
