"""READs: responses where their request reserved them, repetitions inside the first request."""

from __future__ import annotations

import traffic
from conformance_traces import (
    NAK,
    answer,
    atomic_ack,
    broken,
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

from rocescope.analyzer.measures.conformance import rules
from rocescope.analyzer.measures.conformance.state import READS

FIRST, MIDDLE, LAST = traffic.READ_FIRST, traffic.READ_MIDDLE, traffic.READ_LAST
ONLY = traffic.READ_ONLY
TOP = 0xFFFFFF
START = [write(TOP - 1, payload_bytes=1024), read(TOP, 4096)]
"""A WRITE that shows the path MTU, and a READ of four packets across the wrap of the PSN."""
WHOLE = [response(TOP, FIRST), response(0), response(1), response(2, LAST)]


def test_a_whole_read() -> None:
    one = judged([*START, *WHOLE])
    assert not broken(one)
    assert kept(one)["read-range"] == kept(one)["read-order"] == 4


def test_response_nobody_asked_for() -> None:
    assert violations(judged([*START, *WHOLE, response(3, ONLY)])) == [
        (rules.READ_OUTSIDE, 7, 0, 3, 0)
    ]


def test_first_and_last_at_wrong_places() -> None:
    assert broken(judged([*START, response(TOP, FIRST), response(0, LAST)])) == {
        rules.READ_MISPLACED: 1
    }
    assert broken(judged([*START, response(TOP, FIRST), response(0, FIRST)])) == {
        rules.READ_MISPLACED: 1
    }


def test_again_only_when_asked_for() -> None:
    twice = [*START, *WHOLE, response(1, at=5000)]
    assert broken(judged(twice)) == {rules.READ_UNASKED: 1}
    asked = [*START, WHOLE[0], WHOLE[1], read(1, 2048, at=5000), *WHOLE[2:]]
    asked[-2:] = [response(1, FIRST, at=5001), response(2, LAST, at=5002)]
    one = judged(asked)
    assert not broken(one)
    assert kept(one)["read-again"] == 1


def test_repetition_ends_elsewhere() -> None:
    rows = [*START, WHOLE[0], read(0, 1024, at=5000)]
    assert violations(judged(rows)) == [(rules.REREAD_ENDS, 4, 0, 0, 3)]


def test_without_the_path_mtu_nothing_is_judged() -> None:
    one = judged([read(1, 4096), response(1, ONLY, payload_bytes=4096)])
    assert not broken(one)
    assert open_cases(one) == {("read-range", rules.REASONS[rules.NO_PATH_MTU]): 1}


def test_lost_responses_are_left_open() -> None:
    one = judged([*START, WHOLE[0], WHOLE[3]])
    assert not broken(one)
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
    assert not broken(one)
    assert kept(one)["rewind-start"] == 1


def test_a_response_acknowledges_a_read_that_is_no_longer_tracked() -> None:
    reads = [read(psn, 64) for psn in range(2, READS + 2)]
    rows = [read(0, 64), write(1), *reads, response(0, ONLY, payload_bytes=64), write(1, at=5000)]
    one = judged([last(-1), answer(-1), *rows])
    assert not broken(one)
    assert kept(one)["rewind-start"] == 1


def test_responses_to_requests_that_arrived_in_another_order() -> None:
    """Outstanding READs and atomics whose requests changed places before the tap."""
    wanted = [fetch_add(0), fetch_add(2), fetch_add(1), fetch_add(3)]
    wanted[2]["ip_id"] = 2  # sent before the packet that overtook it
    wanted[1]["ip_id"] = 3
    one = judged([*wanted, *(atomic_ack(psn) for psn in range(4))])
    assert not broken(one)
    assert kept(one)["read-range"] == 4

    asked = [write(TOP, payload_bytes=1024), read(4, 4096), read(0, 4096), read(8, 2048)]
    asked[1]["ip_id"], asked[2]["ip_id"] = 3, 2
    whole = [response(p, {0: FIRST, 3: LAST}.get(p % 4, MIDDLE)) for p in range(8)]
    one = judged([*asked, *whole, response(8, FIRST), response(9, LAST)])
    assert not broken(one)
    assert kept(one)["read-range"] == 10


def test_one_read_of_unknown_length_hides_no_other() -> None:
    """Only the nearest request before a response can have asked for it."""
    one = judged([read(0, 4096), read(8, 64), response(8, ONLY, payload_bytes=64)])
    assert kept(one)["read-range"] == 1


def test_a_late_request_is_answered_again() -> None:
    lost = [write(n) for n in range(8)] + [write(9), answer(8, NAK)]
    rows = [*lost, fetch_add(8, ip_id=20), write(9, ip_id=21), atomic_ack(8)]
    one = judged([*rows, fetch_add(8, ip_id=9), atomic_ack(8, ip_id=40)])
    assert not broken(one)
    assert broken(judged([*rows, atomic_ack(8, ip_id=40)])) == {rules.READ_UNASKED: 1}


def test_a_request_that_the_network_doubled_is_answered_again() -> None:
    asked = fetch_add(8, ip_id=9)
    rows = [*(write(n) for n in range(8)), asked, atomic_ack(8), asked, atomic_ack(8, ip_id=40)]
    assert not broken(judged(rows))
