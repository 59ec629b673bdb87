"""Connections whose first packets were lost: before the tap, after it, or before the capture."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conformance_traces import NAK
from factories import START_NS, Frame, write_pcap
from go_back_n import MESSAGE, Connection

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow

PACKETS, LOST = 160, 20
SPORT = 49458  # of the queue pairs 0x11 and 0x12, as Linux computes it
ARP = bytes(12) + b"\x08\x06" + bytes(46)
WRITE_FIRST, ACK = 0x06, 0x11


def frame(row: dict[str, Any]) -> Frame:
    back = row.get("answer", False)
    hosts = (2, 1) if back else (1, 2)
    rest = struct.pack("!I", row["aeth"]) if back else bytes(1024)
    if row["opcode"] == WRITE_FIRST:
        rest = struct.pack("!QII", 0, 1, MESSAGE * 1024) + rest
    flags = row.get("bth_flags", 0) << 8 | row["psn"]
    qp = 0x12 if back else 0x11
    bth = struct.pack("!BBHII", row["opcode"], 0x40, 0xFFFF, qp, flags & 0xFFFFFFFF) + rest
    udp = struct.pack("!HHHH", SPORT, 4791, 12 + len(bth), 0) + bth + bytes(4)
    total, addresses = 20 + len(udp), bytes((10, 0, 0, hosts[0], 10, 0, 0, hosts[1]))
    ip = struct.pack("!BBHHHBBH", 0x45, 2, total, row["ip_id"], 0x4000, 64, 17, 0)
    data = bytes(12) + b"\x08\x00" + ip + addresses + udp
    return Frame(START_NS + 1000 * row["at"], data[:128], len(data))


def flow_of(path: Path, frames: Iterable[Frame]) -> tuple[Analysis, Flow]:
    result = analyze([str(write_pcap(path, frames))], AnalyzeOptions())
    return result, next(flow for flow in result.flows if flow.dest_qp == 0x11)


def earlier(frames: list[Frame], ns: int) -> list[Frame]:
    """With a frame that is no RoCE packet, so much before the first one."""
    return [Frame(frames[0].time_ns - ns, ARP), *frames]


def test_lost_before_the_tap_while_the_capture_ran(tmp_path: Path) -> None:
    connection = Connection(1, 100, PACKETS, 0, 0, 0, "", range(1, LOST + 1))
    frames = [frame(row) for row in connection.run()]
    result, flow = flow_of(tmp_path / "x.pcap", earlier(frames, 2_000_000))
    assert (flow.recovered_packets, flow.missing_packets) == (LOST, 0)
    assert flow.messages == PACKETS // MESSAGE
    (finding,) = [f for f in result.diagnosis.findings if f.kind == "loss"]
    assert (finding.place.direction, finding.packets) == ("before the tap", LOST)


def test_lost_before_the_tap_or_before_the_capture(tmp_path: Path) -> None:
    """The capture begins with the first packet seen, or shortly before: nothing is proven."""
    connection = Connection(1, 100, PACKETS, 0, 0, 0, "", range(1, LOST + 1))
    frames = [frame(row) for row in connection.run()]
    for some in (frames, earlier(frames, 500_000)):
        result, flow = flow_of(tmp_path / "x.pcap", some)
        assert (flow.recovered_packets, flow.missing_packets) == (0, 0)
        assert not [f for f in result.diagnosis.findings if f.kind == "loss"]


class WithoutNak(Connection):
    """The NAKs are lost before the tap on their way back: the sender waits for its timeout."""

    outstanding = 120

    def _answer(self, index: int, syndrome: int) -> None:
        if syndrome != NAK:
            super()._answer(index, syndrome)


def test_lost_before_the_tap_and_the_nak_too(tmp_path: Path) -> None:
    """The ACK of the first message is the proof, for what is retransmitted after it passed."""
    lost = 100
    rows = WithoutNak(1, 100, PACKETS, 0, 0, 0, "", range(1, lost + 1)).run()
    acked = next(at for at, row in enumerate(rows) if row.get("answer"))
    assert rows[acked]["psn"] == 100 + MESSAGE - 1
    proven = sum(row["psn"] < 100 + lost for row in rows[acked:] if not row.get("answer"))
    assert 0 < proven < lost
    frames = [frame(row) for row in rows]
    for ran_ns, recovered in ((2_000_000, proven), (500_000, 0)):
        result, flow = flow_of(tmp_path / "x.pcap", earlier(frames, ran_ns))
        assert (flow.recovered_packets, flow.missing_packets) == (recovered, 0)
        losses = [f.place.direction for f in result.diagnosis.findings if f.kind == "loss"]
        assert losses == ["before the tap"] * (recovered > 0)


class LostBehind(Connection):
    """The first packets pass the tap and are lost behind it."""

    def _at_tap(self, packet: tuple[int, int]) -> None:
        self.loss_behind = 1.0 if packet[1] <= LOST else 0.0
        super()._at_tap(packet)


def test_lost_after_the_tap_before_the_capture_began(tmp_path: Path) -> None:
    """The capture begins within the packets that are lost after the tap."""
    frames = [frame(row) for row in LostBehind(1, 100, PACKETS, 0, 0, 0).run()]
    for begin in (0, 1, LOST // 2, LOST, LOST + 1):
        result, flow = flow_of(tmp_path / "x.pcap", frames[begin:])
        assert (flow.recovered_packets, flow.missing_packets) == (0, 0)
        places = [f.place.direction for f in result.diagnosis.findings if f.kind == "loss"]
        assert places == (["after the tap"] if begin == 0 else [])


def test_a_message_completed_before_the_capture(tmp_path: Path) -> None:
    """The receiver has completed a message that the tap never saw: the capture began later."""
    connection = Connection(1, 100, PACKETS, 0, 0, 0, "", range(MESSAGE + 1, MESSAGE + 6))
    rows = connection.run()
    began = next(i for i, row in enumerate(rows) if row["psn"] >= 100 + MESSAGE + 5)
    frames = [frame(row) for row in rows[began:]]
    _, flow = flow_of(tmp_path / "x.pcap", earlier(frames, 2_000_000))
    assert (flow.recovered_packets, flow.missing_packets) == (0, 0)


def test_cm_messages_name_the_first_packet(data: Path, tmp_path: Path) -> None:
    """c13: without its first five requests a flow has five packets that the capture missed."""
    raw = gzip.decompress((data / "c13_rc_write_rdmacm_ipv4.atB.pcap.gz").read_bytes())
    whole = analyze([str(data / "c13_rc_write_rdmacm_ipv4.atB.pcap.gz")], AnalyzeOptions())
    wanted = next(flow for flow in whole.flows if flow.request_packets == 800)
    kept, at, dropped = [raw[:24]], 24, 0
    while at < len(raw):
        end = at + 16 + struct.unpack_from("<I", raw, at + 8)[0]
        ip = raw[at + 16 + 14 : end]
        mine = ip[9] == 17 and ip[22:24] == (4791).to_bytes(2, "big") and len(ip) >= 40
        mine = mine and int.from_bytes(ip[33:36], "big") == wanted.dest_qp and ip[28] < ACK
        if mine and dropped < 5:
            dropped += 1
        else:
            kept.append(raw[at:end])
        at = end
    assert dropped == 5
    path = tmp_path / "cut.pcap"
    path.write_bytes(b"".join(kept))
    result = analyze([str(path)], AnalyzeOptions())
    flow = next(f for f in result.flows if (f.src, f.dest_qp) == (wanted.src, wanted.dest_qp))
    assert (flow.missing_packets, flow.capture_loss_suspected_packets) == (5, 5)
    assert (flow.recovered_packets, flow.retransmitted_packets) == (0, 0)


def test_a_receiver_that_expects_psns_that_were_never_sent(data: Path) -> None:
    """c40: the receiver of QP 0x1a8 begins at PSN 6651, its sender at 6656 and stays there."""
    result = analyze([str(data / "c40_rc_oddities_ipv4.atB.pcap")], AnalyzeOptions())
    assert {flow.missing_packets for flow in result.flows} <= {0, None}
    assert not any(flow.recovered_packets for flow in result.flows)
