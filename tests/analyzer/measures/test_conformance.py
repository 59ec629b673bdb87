"""CNPs against CE marks, beside a count in plain Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import traffic
from captures import DATA
from conformance_traces import (
    ACK,
    answer,
    atomic_ack,
    fetch_add,
    judged,
    kept,
    last,
    open_cases,
    read,
    response,
    violations,
    write,
)
from conformance_traces import NAK as READS_NAK
from conformance_traces import NAK as REQUESTER_NAK
from conformance_traces import NAK as RESPONDER_NAK
from conformance_traces import NAK as TAPS_NAK
from conformance_traces import broken as broken_reads
from conformance_traces import broken as broken_requester
from conformance_traces import broken as broken_responder
from conformance_traces import broken as broken_walk
from examples import examples
from go_back_n import Connection
from hypothesis import example, given
from hypothesis import strategies as st
from tracked_batches import START_NS, tracked
from traffic import packets

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.measures.conformance.cnp import SCOPE_NAMES
from rocescope.analyzer.measures.conformance.go_back_n import RNR_TIMER_NS
from rocescope.analyzer.measures.conformance.options import (
    ConformanceOptions,
    endpoint_of,
    hosts_at_taps,
    parse_at_host,
    parse_same_port,
)
from rocescope.analyzer.measures.conformance.state import BY_NAK, BY_TIMEOUT, READS
from rocescope.analyzer.measures.conformance.taps import Conformance, TapConformance
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.conformance import _View, cnp_conformance
from rocescope.analyzer.track.state import FLOW
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry

# CNPs against CE marks, beside a count in plain Python.

CNP, CE = 0x81, 3
INTERVAL_NS = 4_000
# Flows 0, 1, 2 carry data, flow f + 3 the answers to it: hosts 0 and 1 send to host 2.
HOSTS = [(0, 2), (0, 2), (1, 2), (2, 0), (2, 0), (2, 1)]
FLOWS = np.zeros(len(HOSTS), FLOW)
FLOWS["src"], FLOWS["dst"] = np.array(HOSTS).T
PEERS = np.array([3, 4, 5, 0, 1, 2], np.int32)
KEYS = {
    "port": lambda f: 2,
    "ip_pair": lambda f: HOSTS[f % 3],
    "destination": lambda f: HOSTS[f % 3][0],
    "queue_pair": lambda f: f % 3,
}
NAK, SEQUENCE_ERROR = 0x11, 0x60


def paced(rows, **options):
    """A TapConformance that saw rows of (flow, time in ns, CE, CNP or NAK)."""
    columns = [
        {
            "flow": flow + 3 if what in (CNP, NAK) else flow,
            "time_ns": START_NS + time,
            "opcode": what if what in (CNP, NAK) else 7,
            "aeth": SEQUENCE_ERROR << 24 if what == NAK else 0,
            "traffic_class": what if what == CE else 0,
            "frame_number": number + 1,
        }
        for number, (flow, time, what) in enumerate(rows)
    ]
    batch = tracked(columns, len(HOSTS))
    batch.peer[:] = PEERS
    one = TapConformance(ConformanceOptions(cnp_interval_ns=INTERVAL_NS, **options))
    one.update(batch, FLOWS)
    return one


def twin(rows, scope, causes=(CE,)):
    """(expected, differing, too close) CNPs of one scope, counted as the definition says."""
    due, expected, last, seen, close = {}, defaultdict(int), {}, defaultdict(int), 0
    for flow, time, what in rows:
        key = KEYS[scope](flow)
        if what in causes and (key not in due or time - due[key] >= INTERVAL_NS):
            due[key] = time
            expected[key] += 1
        if what == CNP:
            close += key in last and time - last[key] < INTERVAL_NS
            last[key] = time
            seen[key] += 1
    keys = set(expected) | set(seen)
    return sum(expected.values()), sum(abs(expected[k] - seen[k]) for k in keys), close


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6_000), st.sampled_from([CE, CE, CNP, NAK])),
    max_size=30,
)


@examples(50)
@given(EVENTS, st.booleans())
def test_counts_equal_those_of_the_definition(events, for_nak) -> None:
    rows, now = [], 0
    for flow, step, what in events:
        now += step
        rows.append((flow, now, what))
    found = cnp_conformance(paced(rows, cnp_for_nak=for_nak).cnp, "tap") if rows else None
    causes = (CE, NAK) if for_nak else (CE,)
    for number, scope in enumerate(SCOPE_NAMES):
        if found is not None:
            record = found.scopes[number]
            counts = (record.expected_cnps, record.difference, record.too_close)
            assert counts == twin(rows, scope, causes)


def test_the_scope_that_explains() -> None:
    marks = [(0, 0, CE), (1, 100, CE), (2, 200, CE)]
    per_queue_pair = [(0, 300, CNP), (1, 400, CNP), (2, 500, CNP)]
    assert cnp_conformance(paced(marks + per_queue_pair).cnp, "t").explained_by == ["queue_pair"]
    per_pair = [(0, 300, CNP), (2, 400, CNP)]
    explained = cnp_conformance(paced(marks + per_pair).cnp, "t").explained_by
    assert explained == ["ip_pair", "destination"]  # the same with one address per port
    assert cnp_conformance(paced([*marks, (0, 300, CNP)]).cnp, "t").explained_by == ["port"]
    assert cnp_conformance(paced(marks).cnp, "t").explained_by == []


def test_an_adapter_with_two_addresses() -> None:
    """Host 0 notifies hosts 2 and, from another address of its port, 2 again: once per interval."""
    flows = np.zeros(4, FLOW)
    flows["src"], flows["dst"] = [2, 2, 0, 1], [0, 1, 2, 2]  # 0 and 1 receive from 2
    rows = [(0, 0, CE), (1, 100, CE), (2, 200, CNP)]
    columns = [
        {
            "flow": flow, "time_ns": START_NS + time, "opcode": what if what == CNP else 7,
            "traffic_class": CE if what == CE else 0, "frame_number": number + 1,
        }
        for number, (flow, time, what) in enumerate(rows)
    ]  # fmt: skip
    batch = tracked(columns, 4)
    batch.peer[:] = [2, 3, 0, 1]
    one = TapConformance(ConformanceOptions(same_port=(("0", "1"),)))
    one.update(batch, flows)
    found = {scope.scope: scope for scope in cnp_conformance(one.cnp, "t").scopes}
    assert found["port"].difference == found["destination"].difference == 0
    assert found["ip_pair"].difference == found["queue_pair"].difference == 1


def test_a_cnp_for_a_nak() -> None:
    rows = [(0, 0, NAK), (0, 100, CNP)]
    assert broken(paced(rows), rules.CNP_UNCAUSED) == 0  # before the switch that marks, maybe
    assert cnp_conformance(paced(rows).cnp, "t").explained_by == []
    found = cnp_conformance(paced(rows, cnp_for_nak=True).cnp, "t")
    assert set(found.explained_by) == set(SCOPE_NAMES)


def broken(one, kind):
    return int(one.keeper.book.broken[:, kind].sum())


def test_interval_and_cause() -> None:
    close = paced([(0, 0, CE), (0, 10, CNP), (0, 3_000, CNP)])
    assert broken(close, rules.CNP_CLOSE) == 1
    far = paced([(0, 0, CE), (0, 10, CNP), (0, 4_010, CNP)])
    assert broken(far, rules.CNP_CLOSE) == 0
    assert broken(paced([(0, 0, CE), (1, 10, CNP)]), rules.CNP_UNCAUSED) == 1
    before_the_marks = paced([(0, 0, CNP)])
    assert broken(before_the_marks, rules.CNP_UNCAUSED) == 0
    assert before_the_marks.keeper.book.undecided[3, rules.CNP_CAUSE, rules.NO_MARKS] == 1


# READs: responses where their request reserved them, repetitions inside the first request.

FIRST, MIDDLE, LAST = traffic.READ_FIRST, traffic.READ_MIDDLE, traffic.READ_LAST
ONLY = traffic.READ_ONLY
TOP = 0xFFFFFF
START = [write(TOP - 1, payload_bytes=1024), read(TOP, 4096)]
"""A WRITE that shows the path MTU, and a READ of four packets across the wrap of the PSN."""
WHOLE = [response(TOP, FIRST), response(0), response(1), response(2, LAST)]


def test_a_whole_read() -> None:
    one = judged([*START, *WHOLE])
    assert not broken_reads(one)
    assert kept(one)["read-range"] == kept(one)["read-order"] == 4


def test_response_nobody_asked_for() -> None:
    assert violations(judged([*START, *WHOLE, response(3, ONLY)])) == [
        (rules.READ_OUTSIDE, 7, 0, 3, 0)
    ]


def test_first_and_last_at_wrong_places() -> None:
    assert broken_reads(judged([*START, response(TOP, FIRST), response(0, LAST)])) == {
        rules.READ_MISPLACED: 1
    }
    assert broken_reads(judged([*START, response(TOP, FIRST), response(0, FIRST)])) == {
        rules.READ_MISPLACED: 1
    }


def test_again_only_when_asked_for() -> None:
    twice = [*START, *WHOLE, response(1, at=5000)]
    assert broken_reads(judged(twice)) == {rules.READ_UNASKED: 1}
    asked = [*START, WHOLE[0], WHOLE[1], read(1, 2048, at=5000), *WHOLE[2:]]
    asked[-2:] = [response(1, FIRST, at=5001), response(2, LAST, at=5002)]
    one = judged(asked)
    assert not broken_reads(one)
    assert kept(one)["read-again"] == 1


def test_repetition_ends_elsewhere() -> None:
    rows = [*START, WHOLE[0], read(0, 1024, at=5000)]
    assert violations(judged(rows)) == [(rules.REREAD_ENDS, 4, 0, 0, 3)]


def test_without_the_path_mtu_nothing_is_judged() -> None:
    one = judged([read(1, 4096), response(1, ONLY, payload_bytes=4096)])
    assert not broken_reads(one)
    assert open_cases(one) == {("read-range", rules.REASONS[rules.NO_PATH_MTU]): 1}


def test_lost_responses_are_left_open() -> None:
    one = judged([*START, WHOLE[0], WHOLE[3]])
    assert not broken_reads(one)
    assert ("read-order", rules.REASONS[rules.LOSS_BEFORE]) in open_cases(one)


def test_a_response_acknowledges_without_the_path_mtu() -> None:
    one = judged(
        [
            last(0),
            answer(0),
            read(1, 512),
            response(1, ONLY, payload_bytes=512),
            last(2),
            last(2, at=5000),  # its ACK was lost: the READ before it was answered
        ]
    )
    assert not broken_reads(one)
    assert kept(one)["rewind-start"] == 1


def test_a_response_acknowledges_a_read_that_is_no_longer_tracked() -> None:
    reads = [read(psn, 64) for psn in range(2, READS + 2)]
    rows = [read(0, 64), write(1), *reads, response(0, ONLY, payload_bytes=64), write(1, at=5000)]
    one = judged([last(-1), answer(-1), *rows])
    assert not broken_reads(one)
    assert kept(one)["rewind-start"] == 1


def test_responses_to_requests_that_arrived_in_another_order() -> None:
    """Outstanding READs and atomics whose requests changed places before the tap."""
    wanted = [fetch_add(0), fetch_add(2), fetch_add(1), fetch_add(3)]
    wanted[2]["ip_id"] = 2  # sent before the packet that overtook it
    wanted[1]["ip_id"] = 3
    one = judged([*wanted, *(atomic_ack(psn) for psn in range(4))])
    assert not broken_reads(one)
    assert kept(one)["read-range"] == 4

    asked = [write(TOP, payload_bytes=1024), read(4, 4096), read(0, 4096), read(8, 2048)]
    asked[1]["ip_id"], asked[2]["ip_id"] = 3, 2
    whole = [response(p, {0: FIRST, 3: LAST}.get(p % 4, MIDDLE)) for p in range(8)]
    one = judged([*asked, *whole, response(8, FIRST), response(9, LAST)])
    assert not broken_reads(one)
    assert kept(one)["read-range"] == 10


def test_one_read_of_unknown_length_hides_no_other() -> None:
    """Only the nearest request before a response can have asked for it."""
    one = judged([read(0, 4096), read(8, 64), response(8, ONLY, payload_bytes=64)])
    assert kept(one)["read-range"] == 1


def test_a_late_request_is_answered_again() -> None:
    lost = [write(n) for n in range(8)] + [write(9), answer(8, READS_NAK)]
    rows = [*lost, fetch_add(8, ip_id=20), write(9, ip_id=21), atomic_ack(8)]
    one = judged([*rows, fetch_add(8, ip_id=9), atomic_ack(8, ip_id=40)])
    assert not broken_reads(one)
    assert broken_reads(judged([*rows, atomic_ack(8, ip_id=40)])) == {rules.READ_UNASKED: 1}


def test_a_request_that_the_network_doubled_is_answered_again() -> None:
    asked = fetch_add(8, ip_id=9)
    rows = [*(write(n) for n in range(8)), asked, atomic_ack(8), asked, atomic_ack(8, ip_id=40)]
    assert not broken_reads(judged(rows))


# Every rule about requests fires on a trace made to break it, and is silent on a right one.

FATAL, RNR_1_28_MS = 0x61, 0x2E
SENT = [write(psn) for psn in range(1, 6)]


def test_goes_back_to_the_nak() -> None:
    one = judged([*SENT, answer(3, REQUESTER_NAK), write(3), write(4), write(5), last(6)])
    assert not broken_requester(one)
    assert kept(one)["rewind-start"] == 1
    assert kept(one)["rewind-order"] == 3
    assert one.keeper.book.states[0]["rewinds"][BY_NAK] == 1


def test_goes_back_behind_the_nak() -> None:
    one = judged([*SENT, answer(3, REQUESTER_NAK), write(4), write(5)])
    assert violations(one) == [(rules.REWIND_ABOVE, 7, 6, 4, 3)]


def test_goes_back_further_than_it_did_for_a_nak() -> None:
    one = judged([*SENT, answer(3, REQUESTER_NAK), write(3), write(4), write(1), write(2)])
    assert violations(one) == [(rules.REWIND_BELOW, 9, 7, 1, 3)]


def test_answers_may_get_lost_on_their_way_to_the_sender() -> None:
    one = judged([*SENT, answer(4), write(2, at=5000), write(3, at=5001)])
    assert not broken_requester(one)
    assert open_cases(one) == {("rewind-start", rules.REASONS[rules.IN_FLIGHT]): 1}
    assert one.keeper.book.states[0]["rewinds"][BY_TIMEOUT] == 1


def test_timeout_goes_back_to_the_first_unacknowledged() -> None:
    one = judged([*SENT, answer(3), *(write(psn, at=9000 + psn) for psn in (4, 5))])
    assert not broken_requester(one)
    assert kept(one)["rewind-start"] == 1
    assert broken_requester(judged([*SENT, answer(3), write(5, at=9000)])) == {
        rules.REWIND_ABOVE: 1
    }


def test_leaves_out_what_was_to_be_sent_again() -> None:
    start = [*SENT, answer(2, REQUESTER_NAK), write(2)]
    assert violations(judged([*start, write(4)])) == [(rules.RESEND_SKIPS, 8, 0, 4, 3)]
    assert broken_requester(judged([*start, write(6)])) == {rules.RESEND_SKIPS: 1}
    # what lies between has been answered: nobody must send it again
    assert not broken_requester(judged([*start, answer(5), write(6)]))


def test_loss_before_the_tap_withdraws_what_it_may_explain() -> None:
    one = judged([write(1), write(4), answer(2, REQUESTER_NAK), write(2), write(4)])
    assert broken_requester(one) == {rules.RESEND_SKIPS: 1}  # unless the tap is behind the loss
    assert one.keeper.book.states[0]["lost_before"] == 1


def test_requests_after_a_fatal_nak() -> None:
    start = [write(1), write(2), answer(2, FATAL)]
    in_flight = judged([*start, write(3)])
    assert not broken_requester(in_flight)
    assert ("fatal-nak", rules.REASONS[rules.IN_FLIGHT]) in open_cases(in_flight)
    assert broken_requester(judged([*start, write(3, at=2_000_000)])) == {rules.AFTER_FATAL: 1}


def test_rnr_wait() -> None:
    start = [write(1), last(2), answer(2, RNR_1_28_MS)]
    assert not broken_requester(judged([*start, last(2, at=1283)]))
    assert kept(judged([*start, last(2, at=1283)]))["rnr-wait"] == 1
    early = judged([*start, last(2, at=1281)])
    assert broken_requester(early) == {rules.RNR_EARLY: 1}
    assert early.keeper.book.violations[0]["value"] == 1_279_000
    # the receiver did not take 2: a NAK for it names what it expects
    refused = judged([*start[:2], write(3), answer(2, RNR_1_28_MS), answer(2, REQUESTER_NAK)])
    assert kept(refused)["nak-psn"] == 1


def test_latencies() -> None:
    rows = [write(1), write(3), answer(2, REQUESTER_NAK), write(2), write(3)]
    pool = judged(rows).keeper.latencies
    generation, response, again = (pool.quantiles(0, kind) for kind in range(3))
    assert generation.max == 1000  # row 2 to row 3
    assert response.max == 1000
    assert again is None  # the tap never saw the first transmission of 2
    pool = judged([*SENT, answer(3, REQUESTER_NAK), write(3)]).keeper.latencies
    assert pool.quantiles(0, 2).max == 4000  # row 3 to row 7
    assert pool.quantiles(0, 3).max == 1000
    assert pool.quantiles(0, 0) is None  # no gap at this tap


def test_other_transports_do_not_go_back() -> None:
    uc = 0x20 | traffic.WRITE_MIDDLE
    rows = [write(psn, opcode=uc) for psn in (1, 2, 5, 2, 1)]
    assert not kept(judged(rows))
    assert not broken_requester(judged(rows))


# Every rule about answers fires on a trace made to break it, and is silent on one that is right.

RESPONDER_TOP = 0xFFFFFF


def test_a_loss_before_the_tap_and_its_repair() -> None:
    one = judged(
        [
            write(RESPONDER_TOP - 1),
            write(1),
            answer(RESPONDER_TOP, RESPONDER_NAK),
            write(RESPONDER_TOP),
            write(0),
            write(1),
            last(2),
        ]
        + [answer(2, ACK, 1)]
    )
    assert not broken_responder(one)
    assert kept(one)["nak-psn"] == kept(one)["nak-once"] == kept(one)["nak-cause"] == 1
    assert kept(one)["rewind-start"] == 1
    assert kept(one)["ack-request"] == 1


def test_nak_repeated_while_it_is_outstanding() -> None:
    one = judged([write(1), write(3), answer(2, RESPONDER_NAK), write(4), answer(2, RESPONDER_NAK)])
    assert violations(one) == [(rules.NAK_REPEATED, 5, 3, 2, 2)]
    repaired = [write(1), write(3), answer(2, RESPONDER_NAK), write(2), write(3)]
    assert not broken_responder(judged([*repaired, write(5), answer(4, RESPONDER_NAK)]))


def test_nak_names_a_later_psn_than_the_first_lost() -> None:
    rows = [write(1), write(4), answer(3, RESPONDER_NAK), write(2, at=5000), write(3, at=5001)]
    assert violations(judged(rows)) == [(rules.NAK_NOT_FIRST, 3, 4, 3, 2)]
    # nobody sends 2 again: the capture missed it
    assert not broken_responder(
        judged([write(1), write(4), answer(3, RESPONDER_NAK), write(3), write(4), last(5)])
    )


def test_nak_without_a_packet_beyond() -> None:
    one = judged([write(1), write(2), answer(3, RESPONDER_NAK)])
    assert broken_responder(one) == {rules.NAK_UNCAUSED: 1}


def test_nak_for_what_the_tap_saw_is_not_judged() -> None:
    one = judged(
        [write(1), write(2), write(3), answer(2, RESPONDER_NAK), write(2), write(3), last(4)]
    )
    assert not broken_responder(one)
    assert open_cases(one) == {("nak-psn", rules.REASONS[rules.LOSS_BEHIND]): 1}
    assert "nak-psn" not in kept(one)


def test_a_nak_that_crosses_the_late_packet() -> None:
    one = judged([write(1), write(3), write(2, ip_id=1), answer(2, RESPONDER_NAK)])
    assert not broken_responder(one)
    assert kept(one)["nak-psn"] == 1


def test_acks_go_back() -> None:
    rows = [write(1), write(2), write(3), answer(3, ip_id=50)]
    assert broken_responder(judged([*rows, answer(1, ip_id=51)])) == {rules.ACK_BACK: 1}
    assert broken_responder(judged([*rows, write(5), answer(2, RESPONDER_NAK, ip_id=51)])) == {
        rules.NAK_BACK: 1
    }
    late = judged([*rows, answer(1, ip_id=49)])
    assert not broken_responder(late)
    assert ("ack-order", rules.REASONS[rules.OVERTAKEN]) in open_cases(late)


def test_answer_before_the_packet_was_sent() -> None:
    one = judged([write(1), answer(2), write(2), answer(2)])
    assert violations(one) == [(rules.ANSWER_UNSENT, 2, 3, 2, 2)]
    # 2 never comes: the capture missed it, or it took another path
    assert not broken_responder(judged([write(1), answer(2), write(3), answer(3)]))


def test_msn_counts_messages() -> None:
    right = [last(1), answer(1, ACK, 7), write(2), last(3), answer(3, ACK, 8)]
    assert not broken_responder(judged(right))
    assert kept(judged(right))["msn"] == 1
    assert broken_responder(judged([*right, last(4), answer(4, ACK, 11)])) == {rules.MSN_WRONG: 1}
    wrap = [last(1), answer(1, ACK, RESPONDER_TOP), last(2), answer(2, ACK, 0)]
    assert not broken_responder(judged(wrap))


def test_messages_behind_a_read_of_unknown_length_are_not_counted() -> None:
    rows = [
        last(0, payload_bytes=64),
        answer(0, msn=1),
        read(1, 512),
        response(1, traffic.READ_ONLY, payload_bytes=512),
    ]
    rows += [
        read(3, 512),
        answer(2, RESPONDER_NAK),
        read(2, 512, at=2000),
        read(3, 512),
        last(4, payload_bytes=64),
    ]
    assert not broken_responder(
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
    assert not broken_responder(judged(asked))  # no answer ever: the queue pair may be closed
    assert not broken_responder(judged([*asked[:3], last(2, at=900_000), answer(2, at=900_100)]))
    # A packet before it is missing: the receiver does not take it.
    gap = [
        last(1),
        answer(1),
        last(3, at=100),
        answer(2, RESPONDER_NAK),
        last(2),
        last(3, at=2_000_200),
    ]
    assert not broken_responder(judged([*gap, answer(3, at=2_000_300)]))
    # The latest of several that asked.
    more = [last(1), last(2, at=50), answer(1, at=60), last(2, at=2_000_200), answer(2)]
    assert violations(judged(more)) == [(rules.NO_ANSWER, 2, 4, 2, 0)]


# Hosts that the user names, and the taps next to them.

ADDRESSES = ["10.0.0.1", "00:11:22:33:44:55", "fd00::1", "10.0.0.2", "10.0.0.3"]
TAPS = {0: "leaf1", 3: "leaf2"}


def test_an_address_in_any_form():
    assert endpoint_of("10.0.0.2", ADDRESSES, "--host") == 3
    assert endpoint_of("FD00:0:0::0001", ADDRESSES, "--host") == 2
    with pytest.raises(UsageError, match="--host: 'leaf1' is not an IP address"):
        endpoint_of("leaf1", ADDRESSES, "--host")
    with pytest.raises(UsageError, match=r"10.9.9.9 is not in this capture, .*10.0.0.2, \.\.\.$"):
        endpoint_of("10.9.9.9", ADDRESSES, "--host")


def test_a_host_and_its_tap():
    assert parse_at_host("10.0.0.1") == ("10.0.0.1", None)
    assert parse_at_host("10.0.0.1=up=1") == ("10.0.0.1", "up=1")
    named = [parse_at_host("10.0.0.1=leaf2"), parse_at_host("fd00::1=leaf2")]
    assert hosts_at_taps(named, ADDRESSES, TAPS) == {0: [], 3: [0, 2]}
    assert hosts_at_taps([("10.0.0.2", None)], ADDRESSES, {7: "only"}) == {7: [3]}
    for name in (None, "leaf9"):  # several taps, or none
        with pytest.raises(UsageError, match=r"as 10.0.0.1=TAP; taps are leaf1, leaf2$"):
            hosts_at_taps([("10.0.0.1", name)], ADDRESSES, TAPS)


def test_addresses_of_one_port():
    assert parse_same_port("10.0.0.1, FD00::0:1") == ("10.0.0.1", "fd00::1")
    with pytest.raises(UsageError, match="is not a list of addresses"):
        parse_same_port("10.0.0.1,leaf1")
    with pytest.raises(UsageError, match="needs two addresses"):
        parse_same_port("fd00::1,fd00:0::1")


# Parts of a capture measured apart, and mirror sessions that show only while reading.

WINDOW_NS = 100_000_000
FILES = [DATA / f"i01_write_loss0.5_AtoB.at{host}.pcap.gz" for host in "AB"]


def measured(paths, many_taps):
    """(Measuring, its registry) of captures read one after the other."""
    registry = Registry()
    measuring = Measuring(WINDOW_NS, many_taps, ConformanceOptions())
    for path in paths:
        capture = open_capture(str(path), registry.taps)
        decoder = Decoder(registry)
        for frames in capture.batches():
            measuring.update(decoder.decode(frames), decoder.take_cm_messages())
    return measuring, registry


def test_a_mirror_session_is_judged_by_itself() -> None:
    rows = [write(1), write(3), answer(2, TAPS_NAK), answer(2, TAPS_NAK)]
    first, second = packets(rows[:1]), packets([{**row, "tap": 1} for row in rows])
    measuring = Measuring(WINDOW_NS, False, ConformanceOptions())
    measuring.update(first)
    measuring.update(second)
    one, other = (measuring.conformance.taps[tap].keeper.book for tap in (0, 1))
    assert one.states["requests"].sum() == 1
    assert other.states["requests"].sum() == 2


@pytest.mark.thorough
def test_hundreds_of_interfaces_with_a_flow_each_take_little_memory() -> None:
    """A hostile pcapng has thousands of interfaces: a book begins with room for few flows."""
    taps = 600
    rows = [write(psn) | {"tap": tap} for psn in range(2) for tap in range(taps)]
    measured = Conformance(ConformanceOptions(), many_taps=True)
    tracker = FlowTracker(taps)
    measured.update(tracker.update(packets(rows)), tracker.flows)
    assert len(measured.taps) == taps
    books = [one.keeper.book for one in measured.taps.values()]
    assert all(len(book.states) == 8 for book in books)
    allocated = sum(array.nbytes for book in books for array in book[:-1])
    assert allocated < 300 << 20


# Connections that keep the rules, simulated in plain Python, break none at any tap.

LOSS = st.sampled_from([0.0, 0.02, 0.1])
SEEDS = st.integers(0, 10_000)


def standing(one):
    """Violations that stand after all evidence of the flow, by kind."""
    tracker = FlowTracker()
    tracker.grow(one.keeper.known_flows)
    tracker.state.used[0] = one.keeper.known_flows
    view = _View(one, tracker, 0)
    found = view.broken.sum(axis=0)
    return {kind: int(n) for kind, n in enumerate(found) if n}


@examples(40)
@given(SEEDS, st.sampled_from([0, 100, 0xFFFF00, 0xFFFFF0]), LOSS, LOSS, LOSS)
def test_connections_that_keep_the_rules_break_none(seed, first, before, behind, acks) -> None:
    connection = Connection(seed, first, 160, before, behind, acks)
    assert not standing(judged(connection.run()))


@examples(20)
@given(SEEDS)
def test_behind_the_loss_every_nak_is_judged(seed) -> None:
    connection = Connection(seed, 0xFFFFC0, 160, 0.05, 0, 0)
    one = judged(connection.run())
    assert kept(one).get("nak-psn", 0) == kept(one).get("nak-once", 0) == connection.naks
    assert one.keeper.book.states[0]["naks"] == connection.naks


@examples(20)
@given(SEEDS)
def test_before_the_loss_every_rewind_is_judged(seed) -> None:
    connection = Connection(seed, 0xFFFFC0, 160, 0, 0.05, 0)
    one = judged(connection.run())
    assert kept(one).get("rewind-start", 0) == connection.rewinds
    assert one.keeper.book.states[0]["rewinds"].sum() == connection.rewinds
    assert "nak-psn" not in kept(one)
    undecided = open_cases(one).get(("nak-psn", rules.REASONS[rules.LOSS_BEHIND]), 0)
    assert undecided == connection.naks


@example(37, 1, 7, 0.03)  # the retransmission of the first packet is lost too
@examples(20)
@given(SEEDS, st.integers(1, 31), st.sampled_from([7, 0xFFFFFA]), st.sampled_from([0, 0.03]))
def test_first_packets_that_the_receiver_lacks_are_no_duplicates(seed, lost, first, more) -> None:
    connection = Connection(seed, first, 160, more, 0, 0, "", range(1, lost + 1))
    one = judged(connection.run(), ran_us=-200_000)
    assert not standing(one)
    assert one.keeper.book.states[0]["duplicates"] == connection.had_already
    found = one.keeper.book.states[0]["lost_before"]
    # Nothing shows the loss of the last packets before an ACK timeout.
    assert found <= len(connection.sent_unseen)
    assert more or found == lost


def test_first_messages_of_one_packet_that_the_receiver_lacks_are_no_duplicates() -> None:
    """No packet tells the path MTU."""
    connection = Connection(1, 100, 160, 0, 0, 0, "", range(1, 6))
    connection.message = 1
    states = judged(connection.run(), ran_us=-200_000).keeper.book.states
    assert states[0]["duplicates"] == connection.had_already == 0
    assert states[0]["lost_before"] == 5


@pytest.mark.parametrize(
    ("fault", "losses", "kind"),
    [
        ("repeats NAKs", (0.01, 0), rules.NAK_REPEATED),
        ("starts behind the NAK", (0, 0.01), rules.REWIND_ABOVE),
    ],
)
def test_planted_faults_are_found(fault, losses, kind) -> None:
    rows = Connection(1, 0xFFFFC0, 1200, *losses, 0, fault).run()  # type: ignore[call-arg]
    assert standing(judged(rows)).get(kind)


@examples(15)
@given(SEEDS, st.lists(st.integers(0, 400), max_size=4))
def test_batches_cut_anywhere_give_the_same(seed, cuts) -> None:
    rows = Connection(seed, 0xFFFFC0, 80, 0.03, 0.03, 0.03).run()
    whole, cut = judged(rows), judged(rows, cuts=cuts)
    assert broken_walk(whole) == broken_walk(cut)
    assert kept(whole) == kept(cut)
    assert open_cases(whole) == open_cases(cut)


NOISE = st.lists(
    st.fixed_dictionaries(
        {
            "psn": st.sampled_from([0, 1, 2, 3, 5, 0xFFFFFF, 0x800000, 0x7FFFFF]),
            "opcode": st.sampled_from([*range(0x18), 0x81, 0xA6, 0xB1, 0x27, 0x64, 0xFF]),
            "aeth": st.integers(0, 2**32 - 1),
            "decode_flags": st.sampled_from([0, 0x10, 0x11, 0x30]),
            "dma_length": st.sampled_from([0, 256, 4096, 2**32 - 1]),
            "bth_flags": st.sampled_from([0, 0x800000]),
            "traffic_class": st.integers(0, 3),
            "ip_id": st.integers(0, 3),
            "answer": st.booleans(),
        }
    ),
    max_size=60,
)


@examples(40)
@given(NOISE, st.lists(st.integers(0, 60), max_size=2))
def test_noise_is_counted_and_harms_nothing(rows, cuts) -> None:
    one = judged(rows, cuts=cuts)
    book = one.keeper.book
    for counts in (book.ok, book.broken, book.undecided):
        assert counts.min(initial=0) >= 0
        assert counts.sum() <= 20 * len(rows) * len(rows)
    kept_here = book.violations[: book.used[0]]
    assert all(0 < frame <= len(rows) for frame in kept_here["frame"])
    assert all(0 <= frame <= len(rows) for frame in kept_here["related"])
