"""Which queue pairs are dead."""

from __future__ import annotations

import numpy as np
from cases import case_of
from conformance_traces import ACK, NAK, answer, last, write
from factories_results import hop

from rocescope.analyzer.diagnosis.finding import death_of, may_be_answered
from rocescope.analyzer.measures.hops.hops import TapHop, TapHops
from rocescope.analyzer.measures.hops.state import EDGE, VISIT
from rocescope.analyzer.results.analysis import TapClock

MS = 1000
REFUSAL = 0x62
BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9)]


def death(rows):
    case = case_of([*BEGIN, *rows])
    return death_of(case, case.flows[0])


def resend(at, ip_id):
    return last(2, at=at, ip_id=ip_id)


def test_an_answered_queue_pair_lives():
    assert death([]) is None
    assert death([last(2, at=10), resend(60 * MS, 90), answer(2, at=60 * MS + 5)]) is None


def test_three_rewinds_without_an_answer():
    rows = [last(2, at=10), *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))]
    assert death(rows[:3]) is None
    dead = death(rows)
    assert (dead.why, dead.packets) == ("unanswered", 3)
    case = case_of([*BEGIN, *rows])
    assert dead.since_ns == case.first_ns + 10_000  # of the request, not of its retransmission


def test_answers_without_a_partner_may_be_those_of_the_sender():
    """Where no tap sees any, they pass elsewhere; where some are seen, they have ended."""
    begin = [write(0, at=0), last(1, at=1), last(2, at=10)]
    again = [resend(60 * MS * n, 90 + n) for n in (1, 2, 3)]
    other = answer(5000, at=12)  # of a PSN that no tap saw
    seen, unseen = case_of([*begin, other, *again]), case_of([*begin, *again])
    assert not seen.connections
    assert death_of(seen, seen.flows[0]).why == "unanswered"
    assert death_of(unseen, unseen.flows[0]) is None
    fewer = case_of([*begin, other, *again[:2]])
    assert death_of(fewer, fewer.flows[0]) is None


def test_two_answers_that_only_this_sender_can_have_got_are_its_own():
    """They are too few for a connection: the queue pair ended after two ACKs."""
    begin = [write(0, at=0), last(1, at=1), last(2, at=10)]
    again = [resend(200 * MS, 91), resend(520 * MS, 92), last(9, at=1100 * MS, dest_qp=0x77)]
    mine = [answer(psn, at=11 + psn, udp_sport=50_001) for psn in (0, 1)]
    case = case_of([*begin, *mine, *again])
    assert not case.connections
    dead = death_of(case, case.flows[0])
    assert (dead.why, dead.packets) == ("unanswered", 2)
    one = case_of([*begin, *mine[1:], *again])
    assert death_of(one, one.flows[0]) is None
    also = answer(4000, at=14, udp_sport=50_001)  # of a PSN that no tap saw
    doubtful = case_of([*begin, *mine, also, *again])
    assert death_of(doubtful, doubtful.flows[0]) is None


def test_two_rewinds_and_half_a_second():
    rows = [last(2, at=10), resend(200 * MS, 91), resend(520 * MS, 92)]
    assert death(rows).why == "unanswered"
    assert death([*rows, answer(2, at=521 * MS)]) is None


def test_a_rewind_that_goes_on_to_new_packets_got_no_answer():
    """The second rewind passes what the first one sent."""
    more = [last(3, at=560 * MS), last(4, at=561 * MS), last(9, at=700 * MS, dest_qp=0x77)]
    rows = [last(2, at=10), resend(200 * MS, 91), resend(520 * MS, 92), *more]
    assert death(rows).why == "unanswered"
    assert death([*rows, answer(2, at=701 * MS)]) is None


def test_a_refusal_is_death_unless_the_sender_goes_on():
    refused = [last(2, at=10), answer(2, REFUSAL, at=20)]
    assert death(refused).why == "refused"
    assert death([*refused, write(3, at=30), last(4, at=31), answer(4, at=40)]) is None


def test_silence_after_an_unanswered_request():
    other = [last(7, at=5000 * MS, dest_qp=0x77)]  # the capture continues
    assert death([last(2, at=10), *other]).why == "silent"
    assert death([last(2, at=10), answer(2, at=20), *other]) is None
    assert death([last(2, at=4500 * MS), *other]) is None
    assert death([write(2, at=10), *other]) is None  # nobody asked for an ACK


def test_one_direction_tells_nothing():
    case = case_of([last(0, at=0), last(7, at=5000 * MS, dest_qp=0x77)])
    assert death_of(case, case.flows[0]) is None


def between_taps(longest_ns):
    """The hop between two taps, where one packet of flow 0 waited this long."""
    passed = np.zeros(2, EDGE)
    passed["flow"] = 0, -1
    passed["delay_max"], passed["delay_min"] = longest_ns, 1000
    way = TapHop(0, 1, total=passed[1], passed=passed[:1])
    empty = np.zeros(0, VISIT)
    ways = TapHops([way], [], empty, 1, 0, 0, 0, 0, 0, ["a", "b"], {})
    return {"tap_hops": ways, "hops": [hop(from_tap="a", to_tap="b")]}


def test_a_request_may_wait_in_a_queue_that_others_left():
    """Three rewinds in 180 ms prove nothing beside a queue of 100 ms."""
    rows = [*BEGIN, last(2, at=10), *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))]
    for waited_ms, lives in ((100, True), (80, False)):
        case = case_of(rows, **between_taps(waited_ms * MS * 1000))
        assert (death_of(case, case.flows[0]) is None) == lives
    clock = TapClock("b", "a", 0.0, 0.0, None, 1)
    case = case_of(rows, **between_taps(100 * MS * 1000), clocks=[clock])
    assert death_of(case, case.flows[0]) is not None  # a clock that jumps is no queue


def test_a_nak_is_an_answer():
    rows = [last(2, at=10)]
    for n in range(1, 6):
        rows += [answer(2, NAK, at=60 * MS * n - 5), resend(60 * MS * n, 90 + n)]
    assert death([*rows, answer(2, ACK, at=301 * MS)]) is None


def test_a_sender_that_goes_back_to_a_later_packet_got_answers_elsewhere():
    """Requests and answers take different ways, and the tap is on one of them."""
    rows = [write(0, at=0), write(1, at=1), last(2, at=2)]
    case = case_of([*rows, *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))])
    assert death_of(case, case.flows[0]) is None
    assert may_be_answered(case, case.flows[0])
    from_the_first = [write(0, at=60 * MS * n, ip_id=90 + n) for n in (1, 2, 3)]
    case = case_of([*rows, *from_the_first])
    assert death_of(case, case.flows[0]).why == "unanswered"
    assert not may_be_answered(case, case.flows[0])
