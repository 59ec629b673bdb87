"""Connection management messages against ground truth, and hostile ones."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from batches import batch, decoder, read_pcap
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.headers.cm import CmMessage

from ....end_to_end.test_decoding_of_captures import facts_of


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
