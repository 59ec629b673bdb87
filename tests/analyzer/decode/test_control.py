"""Connection management messages against ground truth, and hostile ones."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from batches import batch, decoder, read_pcap
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.control import MOST_SPANS, CmMessage
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.results.captures import Pause, PauseSpan

from ...end_to_end.test_decoding import facts_of

# Connection management messages against ground truth, and hostile ones.


def messages_of(path: Path) -> tuple[list[CmMessage], list[str]]:
    dec = decoder()
    dec.decode(read_pcap(path))
    messages = dec.take_cm_messages()
    assert dec.take_cm_messages() == []
    return messages, dec.registry.endpoints.texts()


@pytest.mark.parametrize(
    ("name", "suffix", "whole"),
    [("c10_rping_ipv4", ".pcap", True), ("c13_rc_write_rdmacm_ipv4", ".pcap.gz", False)],
)
def test_real_connections(data: Path, name: str, suffix: str, whole: bool) -> None:
    facts = facts_of(data, name)
    messages, texts = messages_of(data / f"{name}.atB{suffix}")
    assert Counter(f"CM_{m.kind}" for m in messages) == facts["cm_mads"]
    found = [
        (f"CM_{m.kind}", texts[m.src], texts[m.dst], m.qpn, m.starting_psn)
        for m in messages
        if m.kind in ("REQ", "REP")
    ]
    # A REQ's starting PSN lies 112 bytes into the UDP payload: cut off at 128 bytes per frame.
    assert found == [
        (
            c["mad"],
            c["src"],
            c["dst"],
            c["local_qpn"],
            c["starting_psn"] if whole or c["mad"] == "CM_REP" else None,
        )
        for c in facts["cm_qp_setup"]
    ]


def test_one_connection_from_request_to_end(data: Path) -> None:
    messages, texts = messages_of(data / "c10_rping_ipv4.atB.pcap")
    by_kind = {m.kind: m for m in messages}
    request, reply = by_kind["REQ"], by_kind["REP"]
    assert list(by_kind) == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    assert reply.remote_comm_id == request.local_comm_id
    assert (by_kind["RTU"].local_comm_id, by_kind["RTU"].remote_comm_id) == (
        request.local_comm_id,
        reply.local_comm_id,
    )
    assert request.service_id == 0x0000_0000_0106_0000 | 7174  # rping's TCP port
    assert (request.transport, request.path_mtu) == ("RC", 4096)
    # rxe folds the flow label into the UDP source port of the connection: 50691.
    assert request.flow_label is not None
    assert 0xC000 | (request.flow_label & 0x3FFF ^ request.flow_label >> 14) == 50691
    assert request.partition_key == 0xFFFF
    assert {by_kind["DREQ"].qpn} <= {49}
    assert texts[request.src] == "10.0.0.1"
    assert request.transaction_id == reply.transaction_id


def mad_frame(mad: bytes, dest_qp: int = 1) -> bytes:
    body = struct.pack(">BBHII", 0x64, 0, 0xFFFF, dest_qp, 0)
    body += struct.pack(">II", 0x80010000, 1) + mad + bytes(4)
    udp = struct.pack(">HHHH", 55410, 4791, 8 + len(body), 0) + body
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, 0x0A000001, 0x0A000002)
    return bytes(12) + b"\x08\x00" + ip + udp


def mad(attribute: int, body: bytes, management_class: int = 7) -> bytes:
    header = struct.pack(">BBBBHHQHHI", 1, management_class, 2, 3, 0, 0, 77, attribute, 0, 0)
    return (header + body).ljust(256, b"\0")


def test_kinds_that_the_captures_do_not_have() -> None:
    bodies = {
        0x0011: struct.pack(">II", 1, 2),
        0x0012: struct.pack(">IIBBH", 1, 2, 1 << 6, 0, 28),
        0x0017: struct.pack(">IHHQ", 5, 0x8001, 0, 0x01060FA1),
        0x0018: struct.pack(">IBBHIQI", 5, 1, 0, 0, 0xABCDEF << 8, 0x01060FA1, 0x11111111),
        0x0099: struct.pack(">II", 1, 2),
    }
    dec = decoder()
    dec.decode(batch([mad_frame(mad(a, body)) for a, body in bodies.items()]))
    mra, rej, request, reply, unknown = dec.take_cm_messages()
    assert (mra.kind, mra.local_comm_id, mra.remote_comm_id) == ("MRA", 1, 2)
    assert (rej.kind, rej.rejected, rej.reason) == ("REJ", 1, 28)
    assert (request.kind, request.local_comm_id, request.service_id) == ("SIDR_REQ", 5, 0x01060FA1)
    assert request.partition_key == 0x8001
    assert (reply.kind, reply.remote_comm_id, reply.reason) == ("SIDR_REP", 5, 1)
    assert (reply.qpn, reply.q_key) == (0xABCDEF, 0x11111111)
    assert unknown.kind == "0x0099"


def test_other_management_and_other_queue_pairs_are_not_cm() -> None:
    dec = decoder()
    frames = [mad_frame(mad(0x10, b"", management_class=3)), mad_frame(mad(0x10, b""), dest_qp=2)]
    assert len(dec.decode(batch(frames))) == 2
    assert dec.take_cm_messages() == []


@given(st.binary(max_size=256), st.integers(0, 330), st.sampled_from([0x10, 0x12, 0x13, 0x18]))
def test_any_content_and_any_cut(body: bytes, cut: int, attribute: int) -> None:
    frame = mad_frame(mad(attribute, body)[:256])[:cut]
    dec = decoder()
    rows = dec.decode(batch([frame], wire=[322]))
    messages = dec.take_cm_messages()
    assert len(messages) == (cut >= 14 + 20 + 8 + 12 + 8 + 24) <= len(rows) + 1
    if messages and cut < 14 + 20 + 8 + 12 + 8 + 24 + 4:
        assert messages[0].local_comm_id is None


# Pause frames: counts and paused time on a fixed clock.

RATE = 400_000_000_000
BEGIN = 1_000_000
QUANTUM_NS = 1.28  # 512 bit times at 400 Gbit/s
DESTINATION = bytes.fromhex("0180c2000001") + bytes(6) + b"\x88\x08"


def pfc(timers: dict[int, int]) -> bytes:
    vector = sum(1 << priority for priority in timers)
    times = [timers.get(priority, 0) for priority in range(8)]
    return (DESTINATION + struct.pack(">HH8H", 0x0101, vector, *times)).ljust(60, b"\0")


def global_pause(time: int) -> bytes:
    return (DESTINATION + struct.pack(">HH", 1, time)).ljust(60, b"\0")


def pauses(*frames: tuple[int, bytes], speed: int | None = RATE, **options: int) -> Decoder:
    dec = decoder(speed=speed, **options)
    times = [BEGIN + at for at, _ in frames]
    assert len(dec.decode(batch([frame for _, frame in frames], time_ns=times))) == 0
    return dec


def test_time_runs_out() -> None:
    dec = pauses((0, pfc({3: 1000})), (5000, pfc({3: 1000})))
    assert dec.counters.pause(0) == [
        Pause(
            *(3, 2, 0, 2000, 2 * 1280, BEGIN, BEGIN + 5000, 1, 2),
            [PauseSpan(BEGIN, BEGIN + 1280), PauseSpan(BEGIN + 5000, BEGIN + 6280)],
        )
    ]
    assert dec.counters.pause_frames() == 2
    assert dec.counters.contents() == [("pause (PFC, 802.3x)", 2)]


def test_renewed_pauses_are_one() -> None:
    dec = pauses((0, pfc({3: 1000})), (1000, pfc({3: 1000})), (2000, pfc({3: 1000})))
    assert dec.counters.pause(0)[0].paused_ns == 2000 + 1280


def test_xon_ends_a_pause_early() -> None:
    dec = pauses((0, pfc({3: 0xFFFF})), (700, pfc({3: 0})), (900, pfc({3: 0})))
    assert dec.counters.pause(0) == [
        Pause(3, 3, 2, 0xFFFF, 700, BEGIN, BEGIN, 1, 1, [PauseSpan(BEGIN, BEGIN + 700)])
    ]


def test_a_pause_still_open_at_the_end_counts_its_whole_time() -> None:
    dec = pauses((0, pfc({3: 0xFFFF})))
    assert dec.counters.pause(0)[0].paused_ns == round(0xFFFF * QUANTUM_NS)


def test_priorities_and_global_pause_are_apart() -> None:
    dec = pauses((0, pfc({0: 100, 7: 0})), (0, global_pause(50)))
    assert dec.counters.pause(0) == [
        Pause(0, 1, 0, 100, 128, BEGIN, BEGIN, 1, 1, [PauseSpan(BEGIN, BEGIN + 128)]),
        Pause(7, 1, 1, 0, 0, None, None, None, None, []),
        Pause(None, 1, 0, 50, 64, BEGIN, BEGIN, 2, 2, [PauseSpan(BEGIN, BEGIN + 64)]),
    ]


def test_no_time_without_a_link_rate() -> None:
    (unknown,) = pauses((0, pfc({3: 9})), speed=None).counters.pause(0)
    assert unknown.paused_ns is None and unknown.spans == []
    given = pauses((0, pfc({3: 100})), speed=None, link_bits_per_second=RATE)
    assert given.counters.pause(0)[0].paused_ns == 128


@examples(20)
@given(st.lists(st.tuples(st.integers(0, 100_000), st.sampled_from([0, 100, 1000])), max_size=100))
def test_spans_hold_every_pause(steps):
    """However many there are: pauses close to each other become one."""
    at, frames, whole = 0, [], []
    for gap, quanta in steps:
        at += gap
        frames.append((at, pfc({3: quanta})))
        if whole and at < whole[-1][1]:
            whole[-1][1] = at + round(quanta * QUANTUM_NS)
        elif quanta:
            whole.append([at, at + round(quanta * QUANTUM_NS)])
    (found,) = pauses(*frames).counters.pause(0) if frames else [None]
    if found is None:
        return
    assert len(found.spans) <= MOST_SPANS
    spans = [(span.from_ns, span.until_ns) for span in found.spans]
    assert all(a <= b for a, b in spans)
    assert all(b < c for (_, b), (c, _) in pairwise(spans))
    for begin, end in whole:
        assert any(a <= BEGIN + begin and BEGIN + end <= b for a, b in spans)
    if len(whole) <= MOST_SPANS:
        assert sum(b - a for a, b in spans) == found.paused_ns


def test_frames_out_of_time_order_keep_the_sum_sane() -> None:
    dec = pauses((5000, pfc({3: 1000})), (0, pfc({3: 1000})))
    (found,) = dec.counters.pause(0)
    assert (found.paused_ns, found.first_time_ns, found.last_time_ns) == (1280, BEGIN, BEGIN + 5000)


def test_cut_and_other_mac_control() -> None:
    dec = pauses((0, pfc({3: 9})[:33]), (0, DESTINATION + b"\x00\x02" + bytes(44)))
    assert dec.counters.undecodable() == {"truncated in a pause frame": 1}
    assert dec.counters.contents()[0] == ("MAC control", 1)
    assert dec.counters.pause(0) == []
