"""The tracker on real traffic: nothing on clean captures, the ground truth on impaired ones."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
import struct
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest
from captures import DATA, Tracked, data, tracked, truth
from conformance_traces import NAK
from examples import first
from factories import START_NS, Frame, write_pcap
from go_back_n import MESSAGE, Connection

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import IN_ORDER, NOT_SEQUENCED, TAP_COPY

# The tracker on real traffic: nothing on clean captures, the ground truth on impaired ones.

ANOMALIES = (
    "reordered",
    "recovered",
    "retransmitted",
    "duplicates",
    "mirror_duplicates",
    "restarts",
)

CLEAN = ["c04", "c05", "c07", "c08", "c10", "c13", "c15", "c16", "c23", "i13"]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_captures_show_no_anomaly(name):
    found = tracked(name)
    assert set(np.unique(found.verdicts)) <= {NOT_SEQUENCED, IN_ORDER}
    assert {field: found.total(field) for field in ANOMALIES} == dict.fromkeys(ANOMALIES, 0)
    assert found.missing() == 0
    assert found.tracker.flows["naks"].sum() == 0


@pytest.mark.parametrize("name", ["c05", "c08", "c10", "c13", "c15", "c16", "c23", "i01", "i04"])
def test_packets_of_each_flow(name):
    """Against the independent parser: packets per (source, destination, destination QP)."""
    names = {"i01": "i01_write_loss0.5_AtoB.atB", "i04": "i04"}
    found = tracked(names.get(name, name))
    _, facts = truth(name)
    flows = facts["captures"]["atB"]["streams"]
    expected = {(f["src"], f["dst"], f["dest_qp"]): f["packets"] for f in flows}
    seen = dict(zip(found.keys(), found.tracker.flows["packets"].tolist(), strict=True))
    assert seen == expected


def test_loss_seen_before_it_happens():
    """Tap A sees every packet sent: the sender's go-back-N and nothing missing."""
    found = tracked("i01_write_loss0.5_AtoB.atA")
    run, facts = truth("i01")
    sent_twice = sum(f["request_psns_repeated"] for f in facts["captures"]["atA"]["streams"])
    assert found.total("retransmitted") == sent_twice == 11210
    assert found.total("recovered") == found.total("reordered") == found.missing() == 0
    # Every NAK the receiver counted made the sender go back.
    naks = run["rxe_hw_counters_delta"]["B"]["rxe0"]["out_of_seq_request"]
    assert found.tracker.flows["naks"].sum() == found.tracker.flows["rewinds"].sum() == naks
    by = found.tracker.flows["retransmitted_by"].sum(axis=0)
    assert by[state.BY_NAK] == sent_twice


def test_loss_seen_after_it_happened():
    """Tap B misses what netem dropped, and sees it come again.

    The 180 drops are not all found as recovered PSNs: some hit packets that
    were retransmitted anyway, of which tap B had seen an earlier transmission.
    What must agree are the PSNs whose first transmission was dropped.
    """
    found = tracked("i01_write_loss0.5_AtoB.atB")
    _, facts = truth("i01")
    lost = facts["between_the_two_captures"]["A_to_B_lost"]
    assert lost["packets"] == 180
    assert found.total("recovered") == _first_transmissions_lost() == 125
    assert found.total("reordered") == found.missing() == 0
    assert found.total("recovered") + found.total("retransmitted") == 11210 - 180 + 125


def _first_transmissions_lost():
    """PSNs whose first packet at tap A never came to tap B, by IPv4 identification (dpkt)."""
    at_a, at_b = (_transmissions(f"i01_write_loss0.5_AtoB.at{tap}.pcap.gz") for tap in "AB")
    # A gap shows only if a higher PSN came before the resend, as go-back-N guarantees here
    # unless the lost packet was the last one sent: then it is new when it comes again.
    return sum(1 for key, ids in at_a.items() if ids[0] not in at_b[key] and at_b[key])


def _transmissions(name):
    import gzip
    import struct

    import dpkt

    found = {}
    with gzip.open(DATA / name) as file:
        for _, frame in dpkt.pcap.Reader(file):
            if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 17:
                continue
            if frame[36:38] != b"\x12\xb7" or frame[42] == 0x11:
                continue
            (qp_word, _, psn_word) = struct.unpack(">I", frame[46:50])[0], 0, frame[50:54]
            key = (frame[26:34], qp_word & 0xFFFFFF, int.from_bytes(psn_word[1:], "big"))
            found.setdefault(key, []).append(int.from_bytes(frame[18:20], "big"))
    return found


def test_reordering_by_the_network():
    """netem held 5 percent of the packets back; the receiver's NAKs made the sender go back."""
    found = tracked("i03_write_reorder5_AtoB.atB")
    run, facts = truth("i03")
    assert found.total("reordered") == 982
    assert found.total("recovered") == found.missing() == 0
    resent = sum(f["request_psns_repeated"] for f in facts["captures"]["atB"]["streams"])
    assert found.total("retransmitted") == resent
    naks = run["rxe_hw_counters_delta"]["B"]["rxe0"]["out_of_seq_request"]
    assert found.tracker.flows["naks"].sum() == naks == 81


def test_duplicates_of_the_network():
    found = tracked("i04")
    run, facts = truth("i04")
    gained = facts["between_the_two_captures"][
        "A_to_B_gained (duplicated or altered in the network)"
    ]
    counted = run["rxe_hw_counters_delta"]["B"]["rxe0"]["duplicate_request"]
    assert found.total("duplicates") == gained["packets"] == counted == 201
    others = [f for f in ANOMALIES if f != "duplicates"]
    assert {f: found.total(f) for f in others} == dict.fromkeys(others, 0)


def test_timeouts():
    """Both sides resend after a silence; each resend is one the hardware counter knows."""
    found = tracked("n05")
    run, _ = truth("n05")
    retries = {
        host: run["rxe_hw_counters_delta"][host]["rxe0"]["completer_retry_err"] for host in "AB"
    }
    by_source = Counter()
    for (src, _, _), flow in zip(found.keys(), found.tracker.flows, strict=True):
        by_source[src] += int(flow["retransmitted_by"][state.BY_TIMEOUT])
    assert by_source == {"10.0.0.1": retries["A"], "10.0.0.2": retries["B"]}
    assert found.total("retransmitted") == sum(retries.values()) == 48


def test_rnr_naks_and_errors():
    found = tracked("c40")
    run, _ = truth("c40")
    counters = run["rxe_hw_counters_delta"]
    flows = found.tracker.flows
    assert flows["rnr_naks"].sum() == counters["A"]["rxe0"]["rcvd_rnr_err"] == 35
    codes = flows["nak_codes"].sum(axis=0)
    assert codes[0] == counters["B"]["rxe0"]["out_of_seq_request"] == 36
    assert codes[2] == 2 and codes[3] == 1  # remote access, remote operational
    assert found.total("recovered") == found.total("reordered") == found.missing() == 0
    assert found.total("restarts") == found.total("duplicates") == 0


def test_two_taps_of_one_path_count_each_packet_once():
    found = tracked("i01_write_loss0.5_AtoB.atA", "i01_write_loss0.5_AtoB.atB")
    one = tracked("i01_write_loss0.5_AtoB.atA")
    # Every transmission passes tap A first, what comes to B is a copy. ACKs the other way round.
    assert np.count_nonzero(found.verdicts == TAP_COPY) == 31972
    assert sorted(found.tracker.flows["packets"]) == sorted(one.tracker.flows["packets"])
    assert found.total("retransmitted") == 11210
    assert found.total("reordered") == found.total("recovered") == found.missing() == 0
    copies = found.tracker.copies
    assert copies[0, 1] == 31972 - 462 and copies[1, 0] == 462


def test_parallel_taps_join_to_the_whole_flow():
    """Four links of one layer: each flow uses one, together they carry all the packets, once."""
    found = Tracked(sorted((DATA / "leafspine/r01_clean_write").glob("*.pcap.gz")))
    run = json.loads((DATA / "leafspine/r01_clean_write/run.facts.json").read_text())
    assert set(np.unique(found.verdicts)) <= {NOT_SEQUENCED, IN_ORDER}
    assert len(found.verdicts) == sum(
        c["roce"] for name, c in run["captures"].items() if name.startswith("leaf1-spine")
    )
    assert found.missing() == 0


def test_a_sprayed_flow_over_four_links_with_one_slow():
    """Packets of H1 take a random spine; in time order over all links they are late, not lost."""
    found = Tracked(sorted((DATA / "leafspine/r09_packet_spray_h1").glob("*.pcap.gz")))
    assert found.total("reordered") > 50
    assert found.missing() == 0
    # A packet crosses one spine: no identification comes twice, even where a resend was faster.
    assert not np.any(found.verdicts == TAP_COPY)


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(2, ["c04", "c15", "c16", "i03", "c40"]))
@pytest.mark.parametrize("batch_frames", [1, 97])
def test_batches_of_any_size_give_the_same(name, batch_frames):
    whole, pieces = tracked(name), tracked(name, batch_frames=batch_frames)
    assert np.array_equal(whole.verdicts, pieces.verdicts)
    for field in whole.tracker.flows.dtype.names:
        assert np.array_equal(whole.tracker.flows[field], pieces.tracker.flows[field]), field


def test_a_nak_that_makes_a_pair_counts_once():
    """As many NAKs as tshark shows for four queue pairs of a sprayed run.

    One of them completes the evidence for its pair: the pair counts it, not the PSN's return too.
    """
    taps = sorted((DATA / "leafspine" / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
    result = analyze([str(path) for path in taps], AnalyzeOptions())
    naks = {f.dest_qp: sum(f.recovery.naks.values()) for f in result.flows}
    assert {qp: naks[qp] for qp in range(0xA9, 0xAD)} == {0xA9: 21, 0xAA: 25, 0xAB: 10, 0xAC: 20}


# Messages of real captures against the command lines of the tools that sent them.

READ_OR_ATOMIC = ("c04_rc_read_q4_64k", "c05_rc_atomic_fetchadd")


@pytest.mark.parametrize(
    "name",
    [
        *READ_OR_ATOMIC,
        "c15_rc_write_ipv6_gid",
        "c16_rc_write_bidir",
        "i01_write_loss0.5_AtoB",
        "i03_write_reorder5_AtoB",
        "i04_write_duplicate1_AtoB",
        "i13_write_ecn_ce2_AtoB",
    ],
)
def test_every_message_perftest_sent_is_seen_once_and_completes(data, name):
    """Whatever was lost, doubled or reordered before this tap: perftest ran to its end."""
    (path,) = data.glob(f"{name}.atB.pcap*")
    run = json.loads((data / f"{name}.json").read_text())["flows"][0]
    options = dict(re.findall(r"-([a-z]) (\w+)", run["client_cmd"]))
    queue_pairs, count = int(options["q"]), int(options["n"])
    size = 8 if name == "c05_rc_atomic_fetchadd" else int(options["s"])
    both_ways = " -b" in run["client_cmd"]

    flows = [f for f in analyze([str(path)], AnalyzeOptions()).flows if f.request_packets]
    assert len(flows) == queue_pairs * (2 if both_ways else 1)
    for flow in flows:
        messages = flow.message_statistics
        assert (messages.count, messages.incomplete) == (count, 0)
        assert messages.size_bytes.min == messages.size_bytes.max == size
        assert messages.completion_ns.count == count
        if name in READ_OR_ATOMIC:
            assert messages.duration_ns is None
        else:
            assert messages.duration_ns.count == count
            assert messages.duration_ns.max < messages.completion_ns.max
        assert 1 <= messages.max_outstanding <= int(options.get("t", 128))
        reads = flow.latency.read_to_first_response_ns
        assert (reads and reads.count) == (count if name == "c04_rc_read_q4_64k" else None)


# Connections whose first packets were lost: before the tap, after it, or before the capture.

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
    result, flow = flow_of(tmp_path / "x.pcap", earlier(frames, 200_000_000))
    assert (flow.recovered_packets, flow.missing_packets) == (LOST, 0)
    assert flow.messages == PACKETS // MESSAGE
    (finding,) = [f for f in result.diagnosis.findings if f.kind == "loss"]
    assert (finding.place.direction, finding.packets) == ("before the tap", LOST)


def test_lost_before_the_tap_or_before_the_capture(tmp_path: Path) -> None:
    """The capture begins with the first packet seen, or shortly before: nothing is proven."""
    connection = Connection(1, 100, PACKETS, 0, 0, 0, "", range(1, LOST + 1))
    frames = [frame(row) for row in connection.run()]
    for some in (frames, earlier(frames, 2_000_000)):
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
    for ran_ns, recovered in ((200_000_000, proven), (2_000_000, 0)):
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
    _, flow = flow_of(tmp_path / "x.pcap", earlier(frames, 200_000_000))
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


# Traffic with silences of 15 s, through three taps that lose nothing.

HOP_NS = 2_000_000
SILENCE_NS = 15 * 10**9
FASTER = 50
"""So that many packets are between two taps."""
SILENT_BEFORE = (0.1, 0.3, 0.5)
"""After these parts of the capture."""


def routed(frame: bytes, hops: int) -> bytes:
    """The frame after some routers: RFC 1624."""
    packet = bytearray(frame)
    packet[22] -= hops
    total = int.from_bytes(packet[24:26]) + (hops << 8)
    packet[24:26] = ((total & 0xFFFF) + (total >> 16)).to_bytes(2)
    return bytes(packet)


def taps_of(name: str) -> tuple[list[list[Frame]], int]:
    """The frames at each tap, and the number of packets."""
    with gzip.open(data(name)) as capture:
        captured = [
            (round(time * 10**9), frame)
            for time, frame in dpkt.pcap.Reader(io.BytesIO(capture.read()))
            if frame[12:14] == b"\x08\0" and frame[23] == dpkt.ip.IP_PROTO_UDP
        ]
    taps: list[list[Frame]] = [[], [], []]
    start, sender = captured[0][0], captured[0][1][26:30]
    for number, (time, frame) in enumerate(captured):
        silences = sum(number >= part * len(captured) for part in SILENT_BEFORE)
        sent = start + (time - start) // FASTER + silences * SILENCE_NS
        for hops, tap in enumerate((0, 1, 2) if frame[26:30] == sender else (2, 1, 0)):
            taps[tap].append(Frame(sent + hops * HOP_NS, routed(frame, hops)))
    return [sorted(tap, key=lambda frame: frame.time_ns) for tap in taps], len(captured)


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(1, ["c16", "c08", "c07"]))
def test_nothing_is_lost_after_a_silence(tmp_path: Path, name: str) -> None:
    taps, packets = taps_of(name)
    paths = [write_pcap(tmp_path / f"{n}.pcap", tap) for n, tap in enumerate(taps)]
    result = analyze([str(path) for path in paths], AnalyzeOptions())
    assert result.diagnosis.findings == []
    assert any("loss" in claim or "lost" in claim for claim in result.diagnosis.healthy)
    assert sum(hop.passed_packets for hop in result.hops) == 2 * packets
    assert [hop.lost_packets for hop in result.hops if hop.lost_packets] == []


# Captures that begin while the traffic runs: what passed before is unknown, not lost.

HEADER, RECORD = 24, 16
OPENERS = {".gz": gzip.open, ".xz": lzma.open}
REAL = [
    "i01_write_loss0.5_AtoB.atA.pcap.gz",
    "i01_write_loss0.5_AtoB.atB.pcap.gz",
    "i03_write_reorder5_AtoB.atB.pcap.gz",
    "n05_rc_write_lat_timeouts.atB.pcap.gz",
    "c40_rc_oddities_ipv4.atB.pcap",
    "whole_leafspine/r09_packet_spray_h1/H3-leaf2.pcap.xz",
    "whole_leafspine/r09_packet_spray_h1/leaf2-spine2.pcap.xz",
]


@cache
def content(name: str) -> tuple[bytes, list[int]]:
    """The bytes of a capture, and where its records begin."""
    path = DATA / name
    with OPENERS.get(path.suffix, open)(path, "rb") as file:
        data = file.read()
    at, records = HEADER, []
    while at < len(data):
        records.append(at)
        at += RECORD + struct.unpack_from("<I", data, at + 8)[0]
    return data, records


def cut(name: str, percent: int, folder: Path) -> Path:
    """The capture without this share of its frames, at its beginning."""
    data, records = content(name)
    begin = records[len(records) * percent // 100]
    path = folder / f"{percent}.pcap"
    path.write_bytes(data[:HEADER] + data[begin:])
    return path


def read(path: Path) -> Analysis:
    return analyze([str(path)], AnalyzeOptions())


def lost_before(result: Analysis) -> int:
    """Packets of findings that say "before the tap"."""
    found = [f for f in result.diagnosis.findings if f.place.direction == "before the tap"]
    return sum(f.packets for f in found if f.kind == "loss")


@pytest.mark.parametrize("name", REAL)
def test_a_capture_cut_at_its_beginning_shows_no_loss_that_the_whole_refutes(
    name: str, tmp_path: Path
) -> None:
    whole = read(cut(name, 0, tmp_path))
    kinds = {f.kind for f in whole.diagnosis.findings}
    for percent in range(10, 100, 10):
        result = read(cut(name, percent, tmp_path))
        assert lost_before(result) <= lost_before(whole), percent
        assert "capture-loss" in kinds or "capture-loss" not in {
            f.kind for f in result.diagnosis.findings
        }, percent


def test_a_capture_begun_in_a_run_that_the_sender_repeats(tmp_path: Path) -> None:
    """At the sender's own NIC, after a NAK: every run is complete, all loss is after the tap."""
    result = read(cut("cases/midstart.pcap.gz", 0, tmp_path))
    flow = next(flow for flow in result.flows if flow.data_packets)
    assert (flow.recovered_packets, flow.missing_packets) == (0, 0)
    assert flow.retransmitted_packets == 811 - 158  # 158 PSNs from the first one on
    (finding,) = [f for f in result.diagnosis.findings if f.kind == "loss"]
    assert finding.place.direction == "after the tap"
    assert finding.packets == 7  # NAKs after the first packet


@pytest.mark.parametrize("start", first(0xFFFFF0, [100]))
@pytest.mark.parametrize("at", range(1, 60, 7))
def test_a_capture_begun_anywhere_in_go_back_n_runs(start: int, at: int, tmp_path: Path) -> None:
    """Also between First and Last, right after a NAK, and with PSNs that wrap."""
    connection = Connection(at, start, 160, 0, 0.05, 0)
    rows = connection.run()
    for skipped in range(at, len(rows) - 2 * MESSAGE, 60):
        path = write_pcap(tmp_path / "x.pcap", [frame(row) for row in rows[skipped:]])
        result = read(path)
        assert lost_before(result) == 0, skipped
        counts = [(f.recovered_packets or 0, f.missing_packets or 0) for f in result.flows]
        assert set(counts) == {(0, 0)}, skipped
