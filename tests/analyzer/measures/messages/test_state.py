"""Messages and latencies equal a plain twin's, however packets are lost, split and merged."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from message_traffic import ack, batch_of, measure, read, responses, row, summary, write
from message_twin import Twin
from tracked_batches import parts, updated

from rocescope.analyzer.measures.messages import MessageStatistics
from rocescope.analyzer.track.batch import (
    DUPLICATE,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    RETRANSMITTED,
)
from rocescope.analyzer.wire.packets import ACK_REQUEST


def check(got, rows):
    twin = Twin(rows)
    for flow in (0, 1):
        messages, latency = got.messages(flow), got.latency(flow)
        assert messages.count == twin.count[flow]
        assert messages.incomplete == twin.incomplete(flow)
        assert summary(messages.size_bytes) == twin.of(flow, "size")
        assert summary(messages.duration_ns) == twin.of(flow, "duration")
        assert summary(messages.completion_ns) == twin.of(flow, "completion")
        assert messages.max_outstanding in (None, twin.most[flow])
        assert summary(latency.request_to_ack_ns) == twin.of(flow, "ack")
        assert summary(latency.read_to_first_response_ns) == twin.of(flow, "first")
        assert got.goodput_bits_per_second(flow) == twin.delivered[flow].bits_per_second()


BASE = (1 << 24) - 20


@st.composite
def conversations(draw):
    """Messages of flow 0 with ACKs and responses of flow 1: shuffled, lost, retransmitted."""
    rows, psn = [], BASE
    for kind, size in draw(
        st.lists(st.tuples(st.sampled_from("wwwsra"), st.integers(1, 5)), max_size=12)
    ):
        at = 100 * len(rows)
        if kind == "r":
            rows += [read(psn, 1000 * size, at), *responses(psn, size, at + 150)]
        elif kind == "a":
            rows += [row("RC_FETCH_ADD", psn, at), row("RC_ATOMIC_ACK", psn, at + 150, flow=1)]
        else:
            rows += write(psn, size, at, payload=draw(st.integers(0, 1024)))
        psn += size if kind != "a" else 1
        if draw(st.booleans()):
            rows.append(ack(psn - 1, at + 140, syndrome=draw(st.sampled_from([0x1F, 0x60, 0x20]))))
    delays = draw(st.lists(st.sampled_from([0, 0, 0, 170, 450]), min_size=80, max_size=80))
    rows = [r | {"time_ns": r["time_ns"] + d} for r, d in zip(rows, delays, strict=False)]
    rows = [r for r in rows if draw(st.integers(0, 9)) != 9]
    for r in draw(st.lists(st.sampled_from(rows), max_size=3)) if rows else []:
        again = draw(st.sampled_from([RETRANSMITTED, DUPLICATE]))
        if r["verdict"] != NOT_SEQUENCED:
            rows.append(r | {"time_ns": r["time_ns"] + 333, "verdict": again})
    rows.sort(key=lambda r: r["time_ns"])
    fates = draw(
        st.lists(st.sampled_from([IN_ORDER, IN_ORDER, RECOVERED]), min_size=90, max_size=90)
    )
    blank = {"bth_flags": 0, "dma_length": 0, "aeth": 0, "decode_flags": 0}
    return [
        blank | r | ({"verdict": fate} if r["verdict"] == IN_ORDER else {})
        for r, fate in zip(rows, fates, strict=False)
    ]


@st.composite
def nonsense(draw):
    """Any opcodes at any near PSNs; the first copy of each PSN is new."""
    names = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_MIDDLE",
        "SEND_LAST",
        "WRITE_ONLY",
        "READ_RESPONSE_LAST",
        "ATOMIC_ACK",
        "ACK",
    ]
    rows, seen = [], set()
    for time, (name, psn, wants) in enumerate(
        draw(
            st.lists(
                st.tuples(st.sampled_from(names), st.integers(0, 40), st.booleans()), max_size=100
            )
        )
    ):
        answer = name.startswith("READ") or "ACK" in name
        r = {"aeth": 0, "dma_length": 0, "bth_flags": ACK_REQUEST if wants and not answer else 0}
        r |= row(f"RC_{name}", BASE + psn, time, int(answer), psn)
        if name == "ACK":
            r = ack(BASE + psn, time)
        elif (answer, psn) in seen:
            r["verdict"] = RETRANSMITTED
        seen.add((answer, psn))
        rows.append(r)
    return rows


@pytest.mark.thorough
@examples(200)
@given(conversations() | nonsense(), st.lists(st.integers(0, 60), max_size=4))
def test_equals_the_twin_however_the_capture_is_split(rows, cuts):
    check(updated(MessageStatistics(), parts(batch_of(rows), cuts)), rows)


@examples(60)
@given(conversations(), conversations(), st.integers(0, 60))
def test_merge(rows, others, cut):
    """The flows of both sides continue after the merge."""
    left = measure(rows)
    right = measure(others[:cut])
    left.merge(right, np.array([70, 71], np.int32))
    moved = [r | {"flow": r["flow"] + 70} for r in others[cut:]]
    left.update(batch_of(moved, [1, 0, *[-1] * 68, 71, 70]))
    check(left, rows)
    alone = measure(others)
    for flow in (0, 1):
        assert left.messages(70 + flow) == alone.messages(flow)
        assert left.latency(70 + flow) == alone.latency(flow)
        assert left.untracked(70 + flow) == alone.untracked(flow)
        assert left.goodput_bits_per_second(70 + flow) == alone.goodput_bits_per_second(flow)
