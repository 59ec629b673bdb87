"""Every rule about requests fires on a trace made to break it, and is silent on a right one."""

from __future__ import annotations

import traffic
from conformance_traces import (
    NAK,
    answer,
    broken,
    judged,
    kept,
    last,
    open_cases,
    violations,
    write,
)

from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.measures.conformance.state import BY_NAK, BY_TIMEOUT

FATAL, RNR_1_28_MS = 0x61, 0x2E
SENT = [write(psn) for psn in range(1, 6)]


def test_goes_back_to_the_nak() -> None:
    one = judged([*SENT, answer(3, NAK), write(3), write(4), write(5), last(6)])
    assert not broken(one)
    assert kept(one)["rewind-start"] == 1
    assert kept(one)["rewind-order"] == 3
    assert one.keeper.book.states[0]["rewinds"][BY_NAK] == 1


def test_goes_back_behind_the_nak() -> None:
    one = judged([*SENT, answer(3, NAK), write(4), write(5)])
    assert violations(one) == [(rules.REWIND_ABOVE, 7, 6, 4, 3)]


def test_goes_back_further_than_it_did_for_a_nak() -> None:
    one = judged([*SENT, answer(3, NAK), write(3), write(4), write(1), write(2)])
    assert violations(one) == [(rules.REWIND_BELOW, 9, 7, 1, 3)]


def test_answers_may_get_lost_on_their_way_to_the_sender() -> None:
    one = judged([*SENT, answer(4), write(2, at=5000), write(3, at=5001)])
    assert not broken(one)
    assert open_cases(one) == {("rewind-start", rules.REASONS[rules.IN_FLIGHT]): 1}
    assert one.keeper.book.states[0]["rewinds"][BY_TIMEOUT] == 1


def test_timeout_goes_back_to_the_first_unacknowledged() -> None:
    one = judged([*SENT, answer(3), *(write(psn, at=9000 + psn) for psn in (4, 5))])
    assert not broken(one)
    assert kept(one)["rewind-start"] == 1
    assert broken(judged([*SENT, answer(3), write(5, at=9000)])) == {rules.REWIND_ABOVE: 1}


def test_leaves_out_what_was_to_be_sent_again() -> None:
    start = [*SENT, answer(2, NAK), write(2)]
    assert violations(judged([*start, write(4)])) == [(rules.RESEND_SKIPS, 8, 0, 4, 3)]
    assert broken(judged([*start, write(6)])) == {rules.RESEND_SKIPS: 1}
    # what lies between has been answered: nobody must send it again
    assert not broken(judged([*start, answer(5), write(6)]))


def test_loss_before_the_tap_withdraws_what_it_may_explain() -> None:
    one = judged([write(1), write(4), answer(2, NAK), write(2), write(4)])
    assert broken(one) == {rules.RESEND_SKIPS: 1}  # unless the tap is behind the loss
    assert one.keeper.book.states[0]["lost_before"] == 1


def test_requests_after_a_fatal_nak() -> None:
    start = [write(1), write(2), answer(2, FATAL)]
    in_flight = judged([*start, write(3)])
    assert not broken(in_flight)
    assert ("fatal-nak", rules.REASONS[rules.IN_FLIGHT]) in open_cases(in_flight)
    assert broken(judged([*start, write(3, at=2_000_000)])) == {rules.AFTER_FATAL: 1}


def test_rnr_wait() -> None:
    start = [write(1), last(2), answer(2, RNR_1_28_MS)]
    assert not broken(judged([*start, last(2, at=1283)]))
    assert kept(judged([*start, last(2, at=1283)]))["rnr-wait"] == 1
    early = judged([*start, last(2, at=1281)])
    assert broken(early) == {rules.RNR_EARLY: 1}
    assert early.keeper.book.violations[0]["value"] == 1_279_000
    # the receiver did not take 2: a NAK for it names what it expects
    refused = judged([*start[:2], write(3), answer(2, RNR_1_28_MS), answer(2, NAK)])
    assert kept(refused)["nak-psn"] == 1


def test_latencies() -> None:
    rows = [write(1), write(3), answer(2, NAK), write(2), write(3)]
    pool = judged(rows).keeper.latencies
    generation, response, again = (pool.quantiles(0, kind) for kind in range(3))
    assert generation.max == 1000  # row 2 to row 3
    assert response.max == 1000
    assert again is None  # the tap never saw the first transmission of 2
    pool = judged([*SENT, answer(3, NAK), write(3)]).keeper.latencies
    assert pool.quantiles(0, 2).max == 4000  # row 3 to row 7
    assert pool.quantiles(0, 3).max == 1000
    assert pool.quantiles(0, 0) is None  # no gap at this tap


def test_other_transports_do_not_go_back() -> None:
    uc = 0x20 | traffic.WRITE_MIDDLE
    rows = [write(psn, opcode=uc) for psn in (1, 2, 5, 2, 1)]
    assert not kept(judged(rows))
    assert not broken(judged(rows))
