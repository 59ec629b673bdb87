"""Messages and latencies of known flows."""

from __future__ import annotations

from message_traffic import ack, batch_of, measure, of, read, responses, row, summary, write
from tracked_batches import START_NS, updated

from rocescope.analyzer.measures.messages import MessageStatistics
from rocescope.analyzer.track.batch import (
    DUPLICATE,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)


def test_writes_in_order_across_the_psn_wrap():
    first = (1 << 24) - 2
    rows = [*write(first, 4, 0, payload=1000), ack(first + 3, 500)]
    rows += [*write(first + 4, 1, 600, payload=10), ack(first + 4, 700)]
    got = measure(rows)
    messages = got.messages(0)
    assert (messages.count, messages.incomplete, messages.max_outstanding) == (2, 0, 1)
    assert summary(messages.size_bytes) == of(4000, 10)
    assert summary(messages.duration_ns) == of(30)
    assert summary(messages.completion_ns) == of(500, 100)
    assert summary(got.latency(0).request_to_ack_ns) == of(470, 100)
    assert got.goodput_bits_per_second(0) == 4010 * 8e9 / 700
    assert got.messages(1).count == got.untracked(0) == 0
    assert got.messages(1).max_outstanding is None


def test_a_reordered_message_is_as_good_as_one_in_order():
    rows = write(100, 6, 0)
    for place, i in enumerate((3, 5, 1, 0, 4, 2)):
        rows[i]["time_ns"] = START_NS + 10 * place
        rows[i]["verdict"] = REORDERED if i < 5 else IN_ORDER
    shuffled = sorted(rows, key=lambda r: r["time_ns"])
    got = measure([*shuffled, ack(105, 300)])
    assert got.messages(0).count == 1
    assert got.messages(0).incomplete == 0
    assert summary(got.messages(0).size_bytes) == of(6 * 1024)
    assert summary(got.messages(0).duration_ns) == of(50)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert summary(got.latency(0).request_to_ack_ns) == of(290)


def test_copies_and_retransmissions_are_no_messages():
    rows = write(0, 3, 0)
    for verdict in (RETRANSMITTED, DUPLICATE, TAP_COPY):
        rows += write(0, 3, 100, verdict=verdict)
    got = measure([*rows, ack(2, 500)])
    assert got.messages(0).count == 1
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None  # Karn: which of them was acknowledged?


def test_one_ack_completes_all_messages_before_it():
    rows = [r for k in range(5) for r in write(2 * k, 2, 100 * k)]
    got = measure([*rows, ack(9, 1000), ack(9, 1200)])
    assert summary(got.messages(0).completion_ns) == of(1000, 900, 800, 700, 600)
    assert got.messages(0).max_outstanding == 5
    assert summary(got.latency(0).request_to_ack_ns) == of(1000 - 410)


def test_a_nak_acknowledges_what_lies_before_it():
    rows = [*write(0, 2, 0), *write(2, 2, 100)]
    got = measure([*rows, ack(2, 500, syndrome=0x60), ack(3, 900, syndrome=0x2E)])
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None


def test_reads_complete_with_their_last_response():
    rows = [read(7, 3000, 0), read(10, 100, 5), *responses(7, 3, 100), *responses(10, 1, 200, 100)]
    got = measure(rows)
    assert got.messages(0).count == 2
    assert got.messages(1).count == 0
    assert summary(got.messages(0).size_bytes) == of(3000, 100)
    assert summary(got.messages(0).completion_ns) == of(120, 195)
    assert summary(got.latency(0).read_to_first_response_ns) == of(100, 195)
    assert got.latency(0).request_to_ack_ns is None
    assert got.messages(0).max_outstanding == 2
    assert got.goodput_bits_per_second(1) == (3 * 1024 + 100) * 8e9 / 100
    assert got.goodput_bits_per_second(0) is None


def test_a_response_acknowledges_the_writes_before_its_read_but_an_ack_no_read():
    rows = [*write(0, 2, 0), read(2, 2048, 20), *write(4, 1, 30), ack(4, 100), ack(4, 150)]
    got = measure([*rows, *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(100, 70, 210 - 20)
    got = measure([*write(0, 2, 0), read(2, 2048, 20), *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(200, 190)


def test_atomics_complete_with_their_ack():
    rows = [row("RC_FETCH_ADD", 5, 0), row("RC_ATOMIC_ACK", 5, 80, flow=1)]
    got = measure(rows)
    assert got.messages(0).count == 1
    assert summary(got.messages(0).size_bytes) == of(8)
    assert summary(got.messages(0).completion_ns) == of(80)


def test_datagrams_and_unreliable_writes_have_sizes_only():
    rows = [row("UD_SEND_ONLY", 3, 0, payload=77, verdict=NOT_SEQUENCED)]
    rows += [
        row("UC_WRITE_FIRST", 0, 10, flow=1, payload=512),
        row("UC_WRITE_LAST", 1, 20, flow=1, payload=5),
    ]
    got = measure(rows)
    assert summary(got.messages(0).size_bytes) == of(77)
    assert summary(got.messages(1).size_bytes) == of(517)
    assert got.messages(1).completion_ns is got.messages(1).max_outstanding is None
    assert got.untracked(1) == 0


def test_messages_cut_off_or_broken_are_incomplete():
    """The first lacks its beginning, the second its middle, the third its end."""
    rows = [*write(0, 3, 0)[1:], *write(3, 3, 100)[::2], *write(6, 3, 200)[:2]]
    got = measure(rows)
    assert got.messages(0).count == 0
    assert got.messages(0).incomplete == 2  # two begun and not ended, two ended and not begun
    late = batch_of([write(3, 3, 100)[1] | {"verdict": RECOVERED, "time_ns": START_NS + 300}])
    got.update(late)
    assert (got.messages(0).count, got.messages(0).incomplete) == (1, 1)


def test_a_restart_gives_up_what_was_open():
    rows = [*write(0, 2, 0), *write(2, 3, 50)[:2], *write(90_000, 2, 100)]
    rows[4]["verdict"] = RESTARTED
    got = measure([*rows, ack(90_001, 400)])
    assert (got.messages(0).count, got.messages(0).incomplete) == (2, 1)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert got.untracked(0) == 1


def test_answers_from_before_the_pairing_do_not_lengthen_completions():
    unpaired = batch_of(
        [*write(0, 2, 0), ack(1, 50), *write(2, 2, 100), *write(4, 2, 200)], (-1, -1)
    )
    paired = batch_of([*write(6, 2, 300), ack(7, 500)])
    got = updated(MessageStatistics(), [unpaired, paired])
    assert summary(got.messages(0).completion_ns) == of(200)
    assert got.messages(0).max_outstanding == 1


def test_more_outstanding_than_the_ring_holds():
    rows = [r for k in range(200) for r in write(k, 1, k)]
    got = measure([*rows, ack(199, 1000), *write(200, 1, 1001), ack(200, 1100)])
    assert got.untracked(0) == 72
    assert got.messages(0).completion_ns.count == 129
    assert got.messages(0).max_outstanding == 200
