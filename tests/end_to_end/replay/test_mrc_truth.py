"""Every figure of an MRC flow against the truth that the generator keeps beside the capture."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.results.mrc import MrcFlow
from rocescope.commands.generate import generate_mrc

STAMP_NS = 128
COUNTS = (
    "packets", "wire_bytes", "ecn_marked_packets", "retransmissions", "lost_packets",
    "trimmed_packets", "skip_once", "always_skip", "nacks",
)  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """Options of the generator, other ones for every seed."""
    rng = random.Random(seed)
    return {
        "seed": seed,
        "loss": rng.choice([0, 0.001, 0.01, 0.03]),
        "trim": rng.choice([0, 0.003, 0.02]),
        "ce": rng.choice([0, 0.05]),
        "always_skip": rng.choice([0, 2]),
        "messages": rng.choice([2, 6, 12]),
        "qps": rng.choice([1, 2]),
        "hosts": rng.choice([2, 3]),
        "fail_plane": rng.choice([None, 2]),
        "no_timestamps": rng.random() < 0.3,
        "no_srv6": rng.random() < 0.3,
        "ipv4": rng.random() < 0.3,
        "rtt": rng.choice(["5us", "10us", "50us"]),
        "tap": rng.choice(["sender", "sender", "receiver"]),
        "evs": rng.choice([64, 128]),
        "planes": rng.choice([2, 4, 8]),
        "entropy_order": rng.choice(["flow-label-high", "udp-port-high"]),
    }


def written(path: Path, **options: Any) -> dict[str, Any]:
    truth = path.with_suffix(".json")
    generate_mrc(output=path, truth=truth, **options)
    found: dict[str, Any] = json.loads(truth.read_text())
    return found


def pairs(
    truth: dict[str, Any], analysis: Analysis
) -> Iterator[tuple[dict[str, Any], Flow, MrcFlow]]:
    flows = {(f.src, f.dst, f.dest_qp): f for f in analysis.flows}
    for expected in truth["flows"]:
        flow = flows[expected["src"], expected["dst"], expected["dest_qp"]]
        assert isinstance(flow.mrc, MrcFlow)
        yield expected, flow, flow.mrc


def check_values(expected: dict[str, Any], mrc: MrcFlow, timed: bool) -> None:
    values = {int(v.ev.split("/")[0]): v for v in mrc.values}
    truths = {v["sport"]: v for v in expected["values"] if v["packets"]}
    assert set(values) == set(truths)
    for port, truth in truths.items():
        value = values[port]
        for name in COUNTS:
            assert getattr(value, name) == truth[name], (port, name)
        assert (value.first_time_ns, value.last_time_ns) == (truth["first_ns"], truth["last_ns"])
        if not timed:
            assert value.round_trips is value.round_trip_mean_ns is None
            continue
        assert value.round_trips == truth["round_trips"]
        if value.round_trips:
            mean = truth["round_trip_sum_ns"] / truth["round_trips"]
            assert value.round_trip_mean_ns == pytest.approx(mean, abs=STAMP_NS)
            assert value.round_trip_min_ns == pytest.approx(
                truth["round_trip_min_ns"], abs=STAMP_NS
            )
            assert value.round_trip_max_ns == pytest.approx(
                truth["round_trip_max_ns"], abs=STAMP_NS
            )


def check_retirements(expected: dict[str, Any], mrc: MrcFlow) -> None:
    """None is missing; those seen for certain are true, with the times that the sender knows."""
    found = {
        (int(r.ev.split("/")[0]), r.cause, r.retired_time_ns): r
        for r in mrc.retirements
        if r.cause != "port_down"
    }
    truths = {(r["sport"], r["cause"], r["last_used_ns"]): r for r in expected["retired"]}
    assert set(truths) <= set(found)
    assert {key for key, r in found.items() if r.certain} <= set(truths)
    for key, truth in truths.items():
        assert found[key].returned_time_ns == truth["used_again_ns"]
        if key[1] == "always_skip":
            assert found[key].cause_time_ns == truth["retired_ns"]
        else:  # it may have kept the value for want of a spare one
            assert found[key].cause_time_ns <= truth["retired_ns"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_every_figure(tmp_path: Path, seed: int) -> None:
    options = drawn(seed)
    at_sender = options["tap"] == "sender"
    truth = written(tmp_path / "x.pcap", **options)
    analysis = analyze([str(tmp_path / "x.pcap")], AnalyzeOptions())
    for expected, flow, mrc in pairs(truth, analysis):
        check_values(expected, mrc, at_sender and not options["no_timestamps"])
        answers = mrc.answers
        assert answers is not None
        for name in ("sacks", "skip_once", "always_skip", "nacks", "received_bytes"):
            assert getattr(answers, name) == expected[name], name
        assert answers.out_of_order_depth is not None
        assert answers.out_of_order_depth.max == expected["max_out_of_order_depth"]
        if at_sender:
            assert answers.in_flight_packets is not None
            assert answers.in_flight_packets.max == expected["max_in_flight_packets"]
            told = any(note.startswith("round trips are unknown") for note in flow.notes)
            assert told == options["no_timestamps"]
            use = expected["max_in_flight_packets"] / expected["psn_range_packets"]
            assert answers.max_window_use == pytest.approx(use)
            check_retirements(expected, mrc)
        assert flow.retransmitted_packets == mrc.retransmissions
        if options["no_srv6"]:
            assert mrc.planes is None
            continue
        assert mrc.planes is not None
        # The segment left names a switch of the plane, at the receiver its port there: 0xd0 + p.
        first = 0 if at_sender else 0xD0 - 1
        carried = {
            str(int(p.plane.split(":")[2][:2], 16) - first): p.wire_bytes for p in mrc.planes.planes
        }
        assert carried == {p: n for p, n in expected["plane_bytes"].items() if n}


def kept(source: Path, target: Path, keep: Callable[[int, bytes], int | None]) -> None:
    """A copy of a pcap whose records `keep` gives a time of, given time and bytes."""
    data, at, records = source.read_bytes(), 24, []
    while at < len(data):
        seconds, rest, captured, wire = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        time = keep(seconds * 10**9 + rest, frame)
        if time is not None:
            records.append(
                (time, struct.pack("<IIII", *divmod(time, 10**9), captured, wire) + frame)
            )
        at += 16 + captured
    records.sort(key=lambda record: record[0])
    target.write_bytes(data[:24] + b"".join(record for _, record in records))


def opcode(frame: bytes) -> int:
    """Of the generator's frames inside SRv6: Ethernet, IPv6, IPv6, UDP."""
    return frame[14 + 40 + 40 + 8]


TROUBLED: dict[str, Any] = {"messages": 8, "loss": 0.01, "trim": 0.01, "ce": 0.02, "seed": 5}


def test_without_half_of_the_feedback(tmp_path: Path) -> None:
    """What packets say of themselves stays exact; answers are those that were seen."""
    truth = written(tmp_path / "x.pcap", **TROUBLED)
    rng, seen = random.Random(1), 0

    def half(time: int, frame: bytes) -> int | None:
        nonlocal seen
        if opcode(frame) not in (0xDC, 0xDD):
            return time
        kept_one = rng.random() < 0.5
        seen += kept_one and opcode(frame) == 0xDC
        return time if kept_one else None

    kept(tmp_path / "x.pcap", tmp_path / "y.pcap", half)
    analysis = analyze([str(tmp_path / "y.pcap")], AnalyzeOptions())
    told = 0
    for expected, _, mrc in pairs(truth, analysis):
        assert mrc.retransmissions == expected["retransmissions"]
        truths = {v["sport"]: v for v in expected["values"]}
        for value in mrc.values:
            mine = truths[int(value.ev.split("/")[0])]
            for name in ("packets", "wire_bytes", "retransmissions", "lost_packets"):
                assert getattr(value, name) == mine[name]
            assert value.skip_once is not None
            assert value.skip_once <= mine["skip_once"]
        assert mrc.answers is not None
        told += mrc.answers.sacks
    assert told == seen
    assert analysis.mrc.entropy_order.neither == 0


def test_one_direction_only(tmp_path: Path) -> None:
    """No answers: whatever they would tell is null, never 0."""
    truth = written(tmp_path / "x.pcap", **TROUBLED)
    kept(tmp_path / "x.pcap", tmp_path / "data.pcap", lambda t, f: t if opcode(f) < 0xD0 else None)
    analysis = analyze([str(tmp_path / "data.pcap")], AnalyzeOptions())
    order = analysis.mrc.entropy_order
    assert order.order is None
    assert order.reason == "no SACK was seen together with its packet"
    for expected, flow, mrc in pairs(truth, analysis):
        assert mrc.answers is None
        assert any(note.startswith("no response of its receiver was seen") for note in flow.notes)
        assert mrc.retransmissions == flow.retransmitted_packets == expected["retransmissions"]
        for value in mrc.values:
            assert value.skip_once is value.always_skip is value.nacks is value.round_trips is None
            assert value.round_trip_mean_ns is None
        assert flow.message_statistics.completion_ns is None
    kept(tmp_path / "x.pcap", tmp_path / "back.pcap", lambda t, f: t if opcode(f) >= 0xD0 else None)
    analysis = analyze([str(tmp_path / "back.pcap")], AnalyzeOptions())
    assert not any(isinstance(flow.mrc, MrcFlow) for flow in analysis.flows)


@pytest.mark.thorough
def test_reordered_between_taps(tmp_path: Path) -> None:
    """At the second tap packets come up to 20 us out of order, and its clock differs."""
    truth = {}
    for tap in ("sender", "receiver"):
        truth = written(tmp_path / f"{tap}.pcap", **TROUBLED, tap=tap)
    rng = random.Random(2)
    kept(
        tmp_path / "receiver.pcap", tmp_path / "late.pcap",
        lambda t, f: t + 40_000 + rng.randrange(20_000),
    )  # fmt: skip
    paths = [str(tmp_path / name) for name in ("sender.pcap", "late.pcap")]
    analysis = analyze(paths, AnalyzeOptions())
    for expected, flow, mrc in pairs(truth, analysis):
        assert mrc.packets == expected["packets"] + expected["retransmissions"]
        assert flow.retransmitted_packets == expected["retransmissions"]
        assert mrc.answers is not None
        for name in ("sacks", "skip_once", "always_skip", "nacks"):
            assert getattr(mrc.answers, name) == expected[name], name
    assert sum(hop.lost_packets for hop in analysis.hops) == sum(f["lost"] for f in truth["flows"])
