"""A test of Lumina's as its orchestrator leaves it, checked from the command line.

One WRITE of six packets; the switch drops the third and damages the fifth. Times in ns; the
layout of the files is that of Lumina's repository (counter_dump.py, controller.py).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from factories import Frame, write_pcap

from rocescope import cli

REQUESTER, RESPONDER = 0x0A000001, 0x0A000002
QP, BACK_QP = 0x12, 0x34
SPORT = 0xC3A8  # of these queue pairs, as Linux computes it
DROP, BIT_ERROR = 1, 3
FIRST, MIDDLE, LAST, ACK = 0x06, 0x07, 0x08, 0x11


def packet(
    number: int, time_ns: int, opcode: int, psn: int, event: int = 0, aeth: int = 0
) -> bytes:
    back = opcode == ACK
    src, dst = (RESPONDER, REQUESTER) if back else (REQUESTER, RESPONDER)
    bth = struct.pack(">BBHII", opcode, 0, 0xFFFF, BACK_QP if back else QP, 1 << 31 | psn)
    if opcode == FIRST:
        bth += struct.pack(">QII", 0, 1, 6 * 1024)
    bth += aeth.to_bytes(4) if back else bytes(1024)
    udp = struct.pack(">HHHH", SPORT, 4791, 8 + len(bth) + 4, 0) + bth + bytes(4)
    ip = struct.pack(
        ">BBHHHBBHII", 0x45, 2, 20 + len(udp), number, 0, event, 17, 0, src, dst
    )  # fmt: skip
    return time_ns.to_bytes(6) + number.to_bytes(6) + b"\x08\x00" + ip + udp


NAK_2, NAK_4 = 0x60 << 24 | 0, 0x60 << 24 | 0
PACKETS = [
    (1000, FIRST, 0), (1100, MIDDLE, 1), (1200, MIDDLE, 2, DROP), (1300, MIDDLE, 3),
    (3300, ACK, 2, 0, NAK_2),  # 2,000 after the packet behind the gap
    (1400, MIDDLE, 4), (1500, LAST, 5),
    (8300, MIDDLE, 2), (8400, MIDDLE, 3), (8500, MIDDLE, 4, BIT_ERROR), (8600, LAST, 5),
    (11600, ACK, 4, 0, NAK_4),
    (14600, MIDDLE, 4), (14700, LAST, 5),
    (17700, ACK, 5, 0, 0x1F << 24 | 1),
]  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """`0/` of a result path: two dumpers, counters of both hosts, and of the switch."""
    ordered = sorted(PACKETS)
    frames = [packet(n + 1, *one) for n, one in enumerate(ordered)]
    for name, part in (("requester", frames[::2]), ("responder", frames[1::2])):
        write_pcap(tmp_path / f"{name}.pcap", [Frame(10**9 + i, f) for i, f in enumerate(part)])
    for when, rows in (("start", (7, 0, 0, 5)), ("finish", (9, 1, 0, 5))):
        (tmp_path / f"responder_counter_{when}.yml").write_text(
            f"port-counters:\n  port_rcv_packets: 12\nhw-counters:\n  out_of_sequence: {rows[0]}\n"
            f"  rx_icrc_encapsulated: {rows[1]}\n  duplicate_request: {rows[2]}\n"
            f"ethtool-counters:\n  rx_discards_phy: {rows[3]}\n  tx_packets: 1\n"
        )
    (tmp_path / "switch_state_snapshot.yml").write_text(
        "counter:\n  egress:\n    132: 3\n    140: 10\n    148: 8\n    156: 7\n"
        "  ingress:\n    132: 12\n    140: 3\n    148: 0\n    156: 0\n"
    )
    return tmp_path


def check(results: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict]:
    captures = [str(results / f"{name}.pcap") for name in ("requester", "responder")]
    options = ["--mirror-format", "lumina", "--format", "json", "--progress", "none"]
    code = cli.run(["check", *captures, *options, *more])
    return code, json.loads(capsys.readouterr().out)


def test_all_that_lumina_checks(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counters = [str(results / f"responder_counter_{when}.yml") for when in ("start", "finish")]
    code, found = check(
        results, capsys, "--counters", *counters, "--host", "10.0.0.2",
        "--switch-counters", str(results / "switch_state_snapshot.yml"),
    )  # fmt: skip
    assert code == 0
    conformance = found["conformance"]
    assert conformance["conformant"]
    judged = {rule["id"]: rule["judged"] for rule in conformance["rules"]}
    assert judged["nak-psn"] == judged["nak-once"] / 2 == 2  # behind the switch; at both taps
    views = {view["tap"]: view for view in conformance["views"]}
    before, behind = views["before the switch"], views["behind the switch"]
    assert (before["position"], behind["position"]) == ("before_loss", "behind_loss")
    assert before["rewinds"]["nak"] == 2
    # Packet 3, behind the gap, to its NAK; and packet 5 behind the damaged one.
    assert (behind["latency"]["nak_generation_ns"]["min"]) == 2000
    assert (behind["latency"]["nak_generation_ns"]["max"]) == 3000
    assert before["latency"]["nak_response_ns"]["max"] == 5000  # 3300 to 8300
    assert before["latency"]["retransmission_ns"]["max"] == 8300 - 1200
    assert before["latency"]["next_delivered_ns"]["min"] == 100
    agreed = {one["counter"]: one["agrees"] for one in conformance["counters"]}
    assert agreed == {
        "out_of_sequence": True, "rx_icrc_encapsulated": True, "duplicate_request": True,
    }  # fmt: skip
    assert not any("dropped packets itself" in note for note in conformance["notes"])
    assert found["warnings"] == []


def test_what_the_switch_did_not_mirror(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = results / "switch_state_snapshot.yml"
    snapshot.write_text(snapshot.read_text().replace("132: 12", "132: 14"))
    _, found = check(results, capsys, "--switch-counters", str(snapshot))
    assert found["warnings"] == [
        "the switch received 17 packets, mirrored 15, and 15 were captured"
    ]
    for text in ("counter: 7", "[", "counter:\n  ingress: {1: a}\n  egress: {1: 2}\n"):
        snapshot.write_text(text)
        captures = str(results / "requester.pcap")
        assert (
            cli.run(
                ["check", captures, "--mirror-format", "lumina", "--switch-counters", str(snapshot)]
            )
            == 4
        )
        assert str(snapshot) in capsys.readouterr().err


def test_undelivered_packets_by_flow(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captures = [str(results / f"{name}.pcap") for name in ("requester", "responder")]
    assert cli.run(["analyze", *captures, "--mirror-format", "lumina", "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mirror_checks"]["undelivered"] == [
        {
            "src": "10.0.0.1", "dst": "10.0.0.2", "dest_qp": QP,
            "dropped_packets": 1, "bit_errors": 1,
        }
    ]  # fmt: skip
    (hop,) = [hop for hop in found["hops"] if hop["lost_packets"]]
    assert (hop["from_tap"], hop["lost_packets"]) == ("before the switch", 2)
    (flow,) = [flow for flow in found["flows"] if flow["dest_qp"] == QP]
    assert flow["retransmitted_packets"] == 6
