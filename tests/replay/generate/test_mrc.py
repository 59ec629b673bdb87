"""Generated MRC: its bytes against vectors by hand, and an analysis of it against the truth."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.results.mrc import MrcFlow
from rocescope.analyzer.summary.names import parse_plane_by
from rocescope.commands.generate import generate_mrc
from rocescope.replay.generate import mrc as frames
from rocescope.replay.generate.mrc import Format, Way

WAY = Way(
    src=bytes.fromhex("20010db800000000000000000000000a"),
    dst=bytes.fromhex("20010db800000000000000000000000b"),
    sport=0xC001,
    label=0xABCD,
    carrier=bytes.fromhex("fcbbbb0001010201f0010000000000ff"),
    dscp=26,
)


def test_headers_written_out_by_hand() -> None:
    """The bytes of tests/analyzer/decode/test_mrc.py, field by field (docs/mrc.md)."""
    assert frames.bth(0xC7, 0x123, 0xFFFF, 0x30).hex(" ") == "c7 00 ff ff 00 00 01 23 30 00 ff ff"
    write = frames.write_headers(0x102, 0xABCD, 0x7F0011224344, 8192, 0xBEEF)
    assert write.hex() == "00000102abcd000100007f00112243440000beef00002000"
    assert frames.write_headers(1, None, 0, 0).hex()[:8] == "00000001"
    sack = frames.sack_headers(
        feedback=2, probe_id=None, offset=-3, entropy=0xABCDC001, cumulative=0xFFFF, mpr=8,
        base_offset=1, bitmap=0x8000000000000005, timestamp=0x1234, held=17, received=0x0A0B0C,
    )  # fmt: skip
    assert sack.hex() == (
        "00" "40" "fffd" "abcdc001" "00000000" "00" "00ffff"
        "00" "08" "0001" "8000000000000005" "1234" "0011" "00" "0a0b0c"
    )  # fmt: skip
    nack = frames.nack_headers(1, 0xABCDC001, 0xABCD, 0x4321)
    assert nack.hex() == "00000100abcdc001000000000000abcd20004321"
    assert frames.probe_headers(0xBEEF, 0x1111).hex() == "00000000beef" + "0" * 12 + "11110001"
    status = frames.port_status_headers(0x0E, 0x2222)
    assert status.hex() == "000000000000000e0000000022220001"
    assert len(frames.endpoint_response_headers(0)) == 36


def test_entropy_in_either_order() -> None:
    assert frames.entropy(WAY, Format(label_high=True)) == 0xABCDC001
    assert frames.entropy(WAY, Format(label_high=False)) == 0xC001ABCD
    assert frames.entropy(WAY, Format(ipv6=False)) == 0x0000C001


def test_frames() -> None:
    """Outer IPv6 carries IPv6 (next header 41), both with DSCP 26, ECT(0): 0x6a."""
    data, wire = frames.frame(WAY, Format(snap=0), frames.bth(0xD1, 1, 2) + b"\x1f\0\0\1", 0)
    assert wire == len(data) == 14 + 40 + 40 + 8 + 12 + 4 + 4
    assert data[12:22].hex() == "86dd66a0abcd0044293f"
    assert data[38:54] == WAY.carrier
    assert data[54:62].hex() == "66a0abcd001c1140"
    assert data[94:102].hex() == "c00112b7001c0000"


def generated(tmp_path: Path, **options: Any) -> tuple[Path, dict[str, Any]]:
    capture, truth = tmp_path / "mrc.pcap", tmp_path / "mrc.json"
    generate_mrc(output=capture, truth=truth, **options)
    return capture, json.loads(truth.read_text())


def analysed(capture: Path, **options: Any) -> Analysis:
    return analyze([str(capture)], AnalyzeOptions(**options))


def begin_earlier(capture: Path) -> None:
    """Put another frame 1 s before the first: only a capture that ran before the traffic tells
    packets lost before the tap from those that passed it before the capture began."""
    content = capture.read_bytes()
    header, frames_captured = content[:24], content[24:]
    seconds, ns = struct.unpack_from("<II", frames_captured)
    lldp = bytes.fromhex("0180c200000e 020000000001 88cc").ljust(60, b"\0")
    record = struct.pack("<IIII", seconds - 1, ns, len(lldp), len(lldp))
    capture.write_bytes(header + record + lldp + frames_captured)


def flow_of(analysis: Analysis, truth: dict[str, Any]) -> tuple[Flow, MrcFlow]:
    (flow,) = (
        f
        for f in analysis.flows
        if (f.src, f.dst, f.dest_qp) == (truth["src"], truth["dst"], truth["dest_qp"])
    )
    assert isinstance(flow.mrc, MrcFlow)
    return flow, flow.mrc


TROUBLED = {"messages": 8, "loss": 0.003, "trim": 0.003, "ce": 0.02, "always_skip": 2}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "at_receiver"),
    [
        ({"seed": 3}, False),
        ({"tap": "receiver", "no_srv6": True, "udp_port": 4971}, True),
        ({"entropy_order": "udp-port-high", "tap": "receiver"}, True),
        ({"entropy_order": "udp-port-high", "no_timestamps": True, "qps": 2}, False),
    ],
)
def test_analysis_finds_the_truth(
    tmp_path: Path, options: dict[str, Any], at_receiver: bool
) -> None:
    capture, truth = generated(tmp_path, **TROUBLED, **options)
    begin_earlier(capture)
    analysis = analysed(capture)
    assert analysis.captures[0].roce_packets == truth["frames"]
    whole = analysis.mrc
    assert whole is not UNSET
    assert whole.packets == truth["frames"]
    assert whole.entropy_order.order == truth["entropy_order"]
    assert whole.entropy_order.neither == 0
    assert sum(f["retransmissions"] for f in truth["flows"]) > 10
    for expected in truth["flows"]:
        flow, mrc = flow_of(analysis, expected)
        assert flow.transport == "MRC"
        assert flow.connection is not None
        assert mrc.retransmissions == flow.retransmitted_packets == expected["retransmissions"]
        assert mrc.retransmissions_after_nack == expected["trimmed"]
        assert flow.missing_packets == flow.duplicate_packets == 0
        assert mrc.entropy_values == expected["entropy_values"]
        assert flow.messages == expected["messages"]
        assert flow.message_statistics.completion_ns is not None
        assert flow.message_statistics.completion_ns.count == expected["acks"]
        answers = mrc.answers
        assert answers is not None
        assert answers.nacks == expected["nacks"]
        counts = (answers.sacks, answers.skip_once, answers.always_skip)
        assert counts == tuple(expected[k] for k in ("sacks", "skip_once", "always_skip"))
        assert answers.psn_range_packets == 1024
        # Per entropy value the same answers, wherever the SACK puts its halves.
        assert sum(v.skip_once or 0 for v in mrc.values) == expected["skip_once"]
        assert sum(v.retransmissions for v in mrc.values) == expected["retransmissions"]
        retired = {r["sport"] for r in expected["retired"] if r["cause"] == "always_skip"}
        found = {int(r.ev.split("/")[0]) for r in mrc.retirements if r.cause == "always_skip"}
        assert found == retired
        if at_receiver:
            assert flow.recovered_packets == expected["lost"]
            assert mrc.trimmed_packets == expected["trimmed"]
            assert flow.ecn_marked_packets == expected["ce"]
            assert (
                mrc.packets == expected["packets"] + expected["retransmissions"] - expected["lost"]
            )
            assert answers.round_trip_ns is None
        else:
            assert flow.reordered_packets == flow.recovered_packets == 0
            assert mrc.packets == expected["packets"] + expected["retransmissions"]
            lost = sum(v.lost_packets for v in mrc.values)
            assert lost == expected["lost"] + expected["trimmed"] == expected["retransmissions"]
        if not at_receiver and "no_timestamps" not in options:
            # The model's round trip of 10 us, up to 3 us more per path, stamps of 128 ns.
            assert answers.round_trip_ns is not None
            assert 10_000 - 128 <= answers.round_trip_ns.min
            assert answers.round_trip_ns.max <= 13_000 + 128
        elif "no_timestamps" in options:
            assert answers.round_trip_ns is None
            assert mrc.timestamped_packets == 0


@pytest.mark.thorough
def test_a_plane_fails(tmp_path: Path) -> None:
    capture, truth = generated(tmp_path, messages=20, fail_plane=3, seed=2)
    analysis = analysed(capture, path_by="srv6")
    whole = analysis.mrc
    assert whole is not UNSET
    assert [(o.host, o.port, o.down_time_ns, o.up_time_ns) for o in whole.outages] == [
        (o["host"], o["port"], o["down_ns"], o["up_ns"]) for o in truth["outages"]
    ]
    for expected in truth["flows"]:
        flow, mrc = flow_of(analysis, expected)
        assert mrc.planes is not None
        assert (mrc.planes.plane_by, mrc.planes.inferred) == ("segment:1", True)
        packets = {f"fcbb:bb00:0{n}00": v for n, v in expected["plane_packets"].items()}
        assert {p.plane: p.packets for p in mrc.planes.planes} == packets
        assert mrc.planes.max_over_mean > 1.1
        out = [r for r in mrc.retirements if r.cause == "port_down"]
        assert len(out) == 16
        assert {r.plane for r in out} == {"fcbb:bb00:0300"}
        (outage,) = whole.outages
        assert outage.up_time_ns is not None
        for r in out:
            assert r.returned_time_ns is not None
            assert r.retired_time_ns <= outage.down_time_ns
            assert r.returned_time_ns >= outage.up_time_ns
        assert flow.paths[0].path.startswith("fcbb:bb00:0")
        assert sum(p.packets for p in flow.paths) == mrc.packets
    kinds = {event.kind for event in analysis.events}
    assert {"ev_retired", "ev_returned", "plane_down", "plane_up"} <= kinds
    lists = analysis.segment_lists
    assert lists is not UNSET
    assert sum(one.packets for one in lists) == truth["frames"]
    assert all(len(one.segments[0]) + one.empty_places == 6 for one in lists)


def test_nothing_wrong_on_a_clean_capture(tmp_path: Path) -> None:
    capture, truth = generated(tmp_path, messages=2, hosts=3)
    analysis = analysed(capture, plane_by=parse_plane_by("ev:0:2"))
    for expected in truth["flows"]:
        _, mrc = flow_of(analysis, expected)
        assert mrc.retransmissions == mrc.trimmed_packets == len(mrc.retirements) == 0
        assert mrc.answers is not None
        assert not mrc.answers.nacks
        assert mrc.planes is not None
        assert not mrc.planes.inferred
        assert {p.plane for p in mrc.planes.planes} == {"0", "1", "2", "3"}
    assert not analysis.events


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "1.pcap", tmp_path / "2.pcap"
    for path in (first, second):
        generate_mrc(output=path, loss=0.01, messages=1, ipv4=True, snaplen=0, message_size="64KiB")
    assert first.read_bytes() == second.read_bytes()
    analysis = analysed(first, icrc=True)
    icrc = analysis.captures[0].icrc
    assert icrc is not None
    assert icrc["bad"] == 0
    assert icrc["ok"] == analysis.captures[0].roce_packets


@pytest.mark.parametrize(
    "options",
    [
        {"loss": 0.5},
        {"ce": 2.0},
        {"planes": 3},
        {"hosts": 1},
        {"fail_plane": 9},
        {"always_skip": 30},
        {"mtu": 1000},
        {"snaplen": 50},
        {"udp_port": 0},
        {"messages": 1 << 30},
    ],
)
def test_impossible_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        generate_mrc(output=tmp_path / "x.pcap", **options)
    assert not (tmp_path / "x.pcap").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"fail_plane": 2, "seed": 1}, {"rtt": "1ms", "ipv4": True}])
def test_taps_in_series(tmp_path: Path, options: dict[str, Any]) -> None:
    """The same traffic seen by senders and receivers: nothing counts twice, losses show.

    However long they are in flight: with 1 ms hundreds of SACKs are between the taps.
    """
    paths = []
    truth: dict[str, Any] = {}
    for tap in ("sender", "receiver"):
        (tmp_path / tap).mkdir()
        capture, truth = generated(tmp_path / tap, **TROUBLED, tap=tap, **options)
        paths.append(str(capture))
    analysis = analyze(paths, AnalyzeOptions())
    for expected in truth["flows"]:
        flow, mrc = flow_of(analysis, expected)
        assert mrc.packets == expected["packets"] + expected["retransmissions"]
        assert flow.retransmitted_packets == expected["retransmissions"]
        assert mrc.answers is not None
        assert mrc.answers.nacks == expected["nacks"]
        assert mrc.answers.skip_once == expected["skip_once"]
        assert mrc.answers.sacks == expected["sacks"]
    assert analysis.hops[0].lost_packets == sum(f["lost"] for f in truth["flows"])


def relabelled(capture: Path, inner: int, outer: int | None) -> None:
    """Give all frames these flow labels; None keeps the outer ones."""
    data, at = bytearray(capture.read_bytes()), 24
    while at < len(data):
        header = at + 16 + 14  # behind the record's header and Ethernet
        for place, label in ((header, outer), (header + 40, inner)):
            if label is not None:
                word = int.from_bytes(data[place : place + 4]) & 0xFFF0_0000 | label
                data[place : place + 4] = word.to_bytes(4)
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    capture.write_bytes(data)


def test_flow_label_in_the_outer_header_alone(tmp_path: Path) -> None:
    """What SACKs name shows where it is: nobody has to say so."""
    capture, truth = generated(tmp_path, messages=2)
    relabelled(capture, 0, None)
    for options in ({}, {"flow_label": "outer"}):
        found = analysed(capture, **options)
        assert found.mrc.entropy_order.order == "flow_label_high"
        assert found.mrc.entropy_order.neither == 0
        assert found.mrc.flow_label == "outer"
        values = {f.mrc.entropy_values for f in found.flows if f.mrc}
        assert values == {flow["entropy_values"] for flow in truth["flows"]}
    unread = analysed(capture, flow_label="inner").mrc
    assert (unread.entropy_order.order, unread.flow_label) == (None, "inner")


def test_outer_flow_labels_that_mean_something_else(tmp_path: Path) -> None:
    """EVs of 16 bits, and a label that SRv6 adds: SACKs name the port alone."""
    capture, truth = generated(tmp_path, messages=2, entropy_order="udp-port-high")
    relabelled(capture, 0, 0x54321)
    data, at = bytearray(capture.read_bytes()), 24
    while at < len(data):  # what a request did not carry is 0 in SETH and NETH
        bth = at + 16 + 14 + 40 + 40 + 8
        if data[bth] in (0xDC, 0xDD):
            data[bth + 12 + 6 : bth + 12 + 8] = bytes(2)
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    capture.write_bytes(data)
    found = analysed(capture)
    assert (found.mrc.entropy_order.order, found.mrc.flow_label) == ("udp_port_high", "inner")
    assert all("/" not in v.ev for f in found.flows if f.mrc for v in f.mrc.values)
