"""The record of a flow: what its figures cover, and null where they cannot be known."""

from __future__ import annotations

import traffic
from cases import case_of


def request(psn, opcode, **more):
    return {"psn": psn, "opcode": opcode, "payload_bytes": 0, **more}


def response(psn, opcode=traffic.ATOMIC_ACK, **more):
    return {"psn": psn, "opcode": opcode, "answer": True, "payload_bytes": 0, **more}


CLEAN = [row for p in range(10) for row in (request(p, traffic.FETCH_ADD), response(p))]
AGAIN = [
    *(request(p, traffic.FETCH_ADD) for p in range(10, 13)),
    *(response(p) for p in range(10, 13)),
    *(request(p, traffic.FETCH_ADD, at=50_000 + p) for p in range(10, 13)),
    *(response(p, at=60_000 + p) for p in range(10, 13)),
]


def test_retransmitted_responses_have_no_rewinds_of_their_own():
    """Three atomics are repeated after a timeout; the responder answers them again."""
    asks, answers = case_of(CLEAN + AGAIN).flows
    assert (asks.retransmitted_packets, answers.retransmitted_packets) == (3, 3)
    assert asks.recovery.retransmitted_by == {"timeout": 3}
    assert asks.recovery.rewinds == 1 and asks.recovery.rewound_bytes
    own = answers.recovery
    assert own.retransmitted_by is own.rewinds is own.rewound_bytes is None
    assert any("3 retransmitted packets answer READs or atomics" in n for n in answers.notes)


def test_without_a_retransmission_zero_is_the_true_figure():
    _, answers = case_of(CLEAN).flows
    recovery = answers.recovery
    assert (recovery.retransmitted_by, recovery.rewinds, recovery.rewound_bytes) == ({}, 0, 0)
    assert not answers.notes


def test_a_flow_of_both_has_the_rewinds_of_its_requests():
    """The responder sends WRITEs too; none of them is retransmitted."""
    writes = [request(p, traffic.WRITE_ONLY, answer=True) for p in range(500, 503)]
    _, both = case_of(CLEAN + writes + AGAIN).flows
    assert both.retransmitted_packets == 3
    assert (both.recovery.retransmitted_by, both.recovery.rewinds) == ({}, 0)
    assert any("those of the requests only" in note for note in both.notes)
