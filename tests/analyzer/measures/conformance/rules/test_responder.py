"""Every rule about answers fires on a trace made to break it, and is silent on one that is right.

The traces follow the InfiniBand specification by hand: what a receiver must answer.
"""

from __future__ import annotations

import traffic
from conformance_traces import (
    ACK,
    NAK,
    answer,
    broken,
    judged,
    kept,
    last,
    open_cases,
    read,
    response,
    violations,
    write,
)

from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.measures.conformance.go_back_n import RNR_TIMER_NS

TOP = 0xFFFFFF


def test_a_loss_before_the_tap_and_its_repair() -> None:
    one = judged(
        [write(TOP - 1), write(1), answer(TOP, NAK), write(TOP), write(0), write(1), last(2)]
        + [answer(2, ACK, 1)]
    )
    assert not broken(one)
    assert kept(one)["nak-psn"] == kept(one)["nak-once"] == kept(one)["nak-cause"] == 1
    assert kept(one)["rewind-start"] == 1
    assert kept(one)["ack-request"] == 1


def test_nak_repeated_while_it_is_outstanding() -> None:
    one = judged([write(1), write(3), answer(2, NAK), write(4), answer(2, NAK)])
    assert violations(one) == [(rules.NAK_REPEATED, 5, 3, 2, 2)]
    repaired = [write(1), write(3), answer(2, NAK), write(2), write(3)]
    assert not broken(judged([*repaired, write(5), answer(4, NAK)]))


def test_nak_names_a_later_psn_than_the_first_lost() -> None:
    rows = [write(1), write(4), answer(3, NAK), write(2, at=5000), write(3, at=5001)]
    assert violations(judged(rows)) == [(rules.NAK_NOT_FIRST, 3, 4, 3, 2)]
    # nobody sends 2 again: the capture missed it
    assert not broken(judged([write(1), write(4), answer(3, NAK), write(3), write(4), last(5)]))


def test_nak_without_a_packet_beyond() -> None:
    one = judged([write(1), write(2), answer(3, NAK)])
    assert broken(one) == {rules.NAK_UNCAUSED: 1}


def test_nak_for_what_the_tap_saw_is_not_judged() -> None:
    one = judged([write(1), write(2), write(3), answer(2, NAK), write(2), write(3), last(4)])
    assert not broken(one)
    assert open_cases(one) == {("nak-psn", rules.REASONS[rules.LOSS_BEHIND]): 1}
    assert "nak-psn" not in kept(one)


def test_a_nak_that_crosses_the_late_packet() -> None:
    one = judged([write(1), write(3), write(2, ip_id=1), answer(2, NAK)])
    assert not broken(one)
    assert kept(one)["nak-psn"] == 1


def test_acks_go_back() -> None:
    rows = [write(1), write(2), write(3), answer(3, ip_id=50)]
    assert broken(judged([*rows, answer(1, ip_id=51)])) == {rules.ACK_BACK: 1}
    assert broken(judged([*rows, write(5), answer(2, NAK, ip_id=51)])) == {rules.NAK_BACK: 1}
    late = judged([*rows, answer(1, ip_id=49)])
    assert not broken(late)
    assert ("ack-order", rules.REASONS[rules.OVERTAKEN]) in open_cases(late)


def test_answer_before_the_packet_was_sent() -> None:
    one = judged([write(1), answer(2), write(2), answer(2)])
    assert violations(one) == [(rules.ANSWER_UNSENT, 2, 3, 2, 2)]
    # 2 never comes: the capture missed it, or it took another path
    assert not broken(judged([write(1), answer(2), write(3), answer(3)]))


def test_msn_counts_messages() -> None:
    right = [last(1), answer(1, ACK, 7), write(2), last(3), answer(3, ACK, 8)]
    assert not broken(judged(right))
    assert kept(judged(right))["msn"] == 1
    assert broken(judged([*right, last(4), answer(4, ACK, 11)])) == {rules.MSN_WRONG: 1}
    wrap = [last(1), answer(1, ACK, TOP), last(2), answer(2, ACK, 0)]
    assert not broken(judged(wrap))


def test_messages_behind_a_read_of_unknown_length_are_not_counted() -> None:
    rows = [
        last(0, payload_bytes=64),
        answer(0, msn=1),
        read(1, 512),
        response(1, traffic.READ_ONLY, payload_bytes=512),
    ]
    rows += [
        read(3, 512),
        answer(2, NAK),
        read(2, 512, at=2000),
        read(3, 512),
        last(4, payload_bytes=64),
    ]
    assert not broken(
        judged([*rows, answer(4, msn=5), last(5, payload_bytes=64), answer(5, msn=6)])
    )


def test_rnr_timers_of_the_specification() -> None:
    assert RNR_TIMER_NS[1] == 10_000
    assert RNR_TIMER_NS[0] == 655_360_000
    assert RNR_TIMER_NS[14] == 1_280_000
    assert RNR_TIMER_NS[31] == 491_520_000


def test_a_request_that_asks_for_an_ack_is_sent_again_unanswered() -> None:
    asked = [last(1), answer(1), last(2, at=100), last(2, at=2_000_200)]
    one = judged([*asked, answer(2, at=2_000_300)])
    assert violations(one) == [(rules.NO_ANSWER, 3, 4, 2, 0)]
    assert kept(one)["ack-request"] == 1
    assert not broken(judged(asked))  # no answer ever: the queue pair may be closed
    assert not broken(judged([*asked[:3], last(2, at=900_000), answer(2, at=900_100)]))
    # A packet before it is missing: the receiver does not take it.
    gap = [last(1), answer(1), last(3, at=100), answer(2, NAK), last(2), last(3, at=2_000_200)]
    assert not broken(judged([*gap, answer(3, at=2_000_300)]))
    # The latest of several that asked.
    more = [last(1), last(2, at=50), answer(1, at=60), last(2, at=2_000_200), answer(2)]
    assert violations(judged(more)) == [(rules.NO_ANSWER, 2, 4, 2, 0)]
