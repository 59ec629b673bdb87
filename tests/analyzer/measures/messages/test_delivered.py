"""Goodput counts what was acknowledged, over the time that it took."""

from __future__ import annotations

import pytest
from message_traffic import ack, measure, responses, row, write

from rocescope.analyzer.track.batch import RECOVERED, REORDERED, RESTARTED, RETRANSMITTED


def again(psn, packets, time):
    return [r | {"verdict": RETRANSMITTED} for r in write(psn, packets, time)]


def rate(payload, ns):
    return pytest.approx(payload * 8e9 / ns)


def test_a_dead_queue_pair_has_no_goodput():
    """It sends a window and goes back to its first packet, without any answer."""
    got = measure([*write(7, 4, 0), *again(7, 4, 1000), *again(7, 4, 2000)])
    assert got.goodput_bits_per_second(0) == 0
    assert not got.unacknowledged(0)


def test_a_queue_pair_that_dies_keeps_what_was_acknowledged_and_loses_the_time():
    rows = [*write(0, 4, 0), ack(3, 100), *write(4, 4, 200), *again(4, 4, 5000)]
    assert measure(rows).goodput_bits_per_second(0) == rate(4096, 5030)


def test_without_the_direction_of_the_acks_it_is_unknown():
    got = measure([*write(0, 4, 0), *write(4, 4, 100)])
    assert got.goodput_bits_per_second(0) is None
    assert got.unacknowledged(0)
    resent = measure([*write(0, 4, 0), *again(2, 2, 100)])  # the sender knows that 0 and 1 arrived
    assert resent.goodput_bits_per_second(0) is None
    went_on = measure([*write(0, 4, 0), *again(0, 4, 100), *write(4, 4, 200)])
    assert went_on.goodput_bits_per_second(0) is None


def test_an_ack_of_a_part_acknowledges_this_part():
    """As of receivers that acknowledge in the middle of a long message."""
    rows = [*write(0, 100, 0), ack(24, 2000)]
    assert measure(rows).goodput_bits_per_second(0) == rate(25 * 1024, 2000)
    assert measure([*rows, ack(99, 4000)]).goodput_bits_per_second(0) == rate(100 * 1024, 4000)


def test_a_nak_acknowledges_what_lies_before_it():
    rows = [*write(0, 4, 0), ack(2, 100, syndrome=0x60)]
    assert measure(rows).goodput_bits_per_second(0) == rate(2048, 100)
    assert measure([*rows, ack(0, 300)]).goodput_bits_per_second(0) == rate(2048, 100)


def test_packets_that_come_after_their_ack_count():
    """The tap sees them late, or the capture missed the first copies."""
    rows = write(0, 4, 0)
    late = rows[1] | {"verdict": REORDERED, "time_ns": rows[1]["time_ns"] + 500}
    got = measure([rows[0], *rows[2:], ack(3, 100), late])
    assert got.goodput_bits_per_second(0) == rate(4096, 510)


def test_packets_before_the_first_one_are_not_acknowledged_yet():
    rows = write(0, 4, 0)
    first = rows[0] | {"verdict": RECOVERED, "time_ns": rows[3]["time_ns"] + 10}
    assert measure([*rows[1:], first]).goodput_bits_per_second(0) is None
    got = measure([*rows[1:], first, ack(1, 100)])
    assert got.goodput_bits_per_second(0) == rate(2048, 90)


def test_a_restart_gives_up_what_was_outstanding():
    rows = [*write(0, 4, 0), ack(3, 100), *write(4, 4, 200), *write(9000, 2, 300)]
    rows[9]["verdict"] = RESTARTED
    assert measure([*rows, ack(9001, 400)]).goodput_bits_per_second(0) == rate(6 * 1024, 400)


def test_read_responses_are_the_answer_and_unreliable_writes_have_none():
    got = measure([*responses(7, 3, 0)])
    assert got.goodput_bits_per_second(1) == rate(3 * 1024, 20)
    unreliable = [row("UC_WRITE_FIRST", 0, 10, payload=512), row("UC_WRITE_LAST", 1, 20, payload=5)]
    assert measure(unreliable).goodput_bits_per_second(0) is None
    assert not measure(unreliable).unacknowledged(0)
