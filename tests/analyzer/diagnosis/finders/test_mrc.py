"""MRC: ports that are down, retired entropy values, trimmed packets."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fabric_captures import (
    MS,
    START_NS,
    address,
    between,
    diagnosis,
    drop,
    simulate,
    some,
    tap_of,
    write,
)
from msgspec import structs

from rocescope.analyzer.diagnosis.finders import mrc
from rocescope.analyzer.diagnosis.finders.hosts import STALL_CAUSES
from rocescope.analyzer.diagnosis.finders.losses import hop_losses
from rocescope.analyzer.diagnosis.finders.mrc import DECLARED_NS, mrc_ports, of_ports
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.pipeline import pipeline
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.mrc import MrcPortOutage
from rocescope.commands.generate import generate_mrc


@pytest.fixture
def diagnosed(tmp_path):
    """Faults of generated traffic, without notes, and the truth."""

    def run(**options):
        path, truth = tmp_path / "mrc.pcap", tmp_path / "truth.json"
        assert generate_mrc(output=path, truth=truth, **options) == 0
        findings = analyze([str(path)], AnalyzeOptions()).diagnosis.findings
        return [f for f in findings if f.severity != "note"], json.loads(truth.read_text())

    return run


@pytest.mark.parametrize("tap", ["sender", "receiver"])
def test_healthy_planes(diagnosed, tap):
    assert diagnosed(tap=tap)[0] == []


def test_a_port_that_is_down(diagnosed):
    (found,), truth = diagnosed(fail_plane=2)
    (outage,) = truth["outages"]
    assert (found.kind, found.severity) == ("mrc-path", "warning")
    assert (found.place.host, found.place.device) == (outage["host"], f"port {outage['port']}")
    assert outage["down_ns"] <= found.from_ns <= outage["up_ns"]
    assert found.until_ns >= outage["up_ns"]
    assert f"port {outage['port']} of {outage['host']} is down" in found.sentence


def test_entropy_values_that_a_receiver_declares_bad(diagnosed):
    (found,), truth = diagnosed(always_skip=3)
    assert (found.kind, found.packets) == (
        "mrc-path",
        sum(f["always_skip"] for f in truth["flows"]),
    )
    assert "senders stopped using" in found.sentence


def test_values_that_senders_retire_although_nothing_is_lost_between_taps(tmp_path):
    """A second tap sees all packets of the first one, 5 us later."""
    first, second = tmp_path / "before.pcap", tmp_path / "after.pcap"
    assert generate_mrc(output=first, evs=8, loss=0.2, no_srv6=True) == 0
    second.write_bytes(_later(first.read_bytes(), 5_000))
    (found,) = _warnings([first])
    assert "although" not in found.sentence
    assert found.packets <= found.of_packets
    (found,) = _warnings([first, second])
    assert "stopped using 8 entropy values, although none of their packets was" in found.sentence
    assert "late SACKs" in found.next_step


def _warnings(paths):
    findings = analyze([str(path) for path in paths], AnalyzeOptions()).diagnosis.findings
    return [f for f in findings if f.severity != "note"]


def _later(pcap, ns):
    """A pcap with nanoseconds, its frames later by so much."""
    changed, at = bytearray(pcap), 24
    while at < len(pcap):
        seconds, rest, size = struct.unpack_from("<III", pcap, at)
        struct.pack_into("<II", changed, at, *divmod(seconds * 10**9 + rest + ns, 10**9))
        at += 16 + size
    return bytes(changed)


HOST = address(3)
DOWN, UP = START_NS + 130 * MS, START_NS + 250 * MS
LAST_HOP = ("leaf2-spine2", "H3-leaf2")
PORT = MrcPortOutage(HOST, 2, DOWN, UP)


def case_with(tmp_path, monkeypatch, fault, *outages):
    """The case of captures with a fault, in which hosts declare ports down."""
    kept = []
    real = pipeline.diagnose

    def keeping(case):
        kept.append(case)
        return real(case)

    monkeypatch.setattr(pipeline, "diagnose", keeping)
    run = simulate(fault=fault)
    diagnosis(write(tmp_path, run.taps))
    return replace(kept[0], mrc=SimpleNamespace(outages=list(outages))), run


def test_it_is_one_finding(tmp_path, monkeypatch):
    fault = between(*LAST_HOP, drop, 100 * MS, 240 * MS)
    case, run = case_with(tmp_path, monkeypatch, fault, PORT)
    assert list(hop_losses(case, Known())) == []
    (one,) = mrc_ports(case, Known())
    assert (one.kind, one.place.host, one.place.device) == ("mrc-path", HOST, "port 2")
    assert (tap_of(one.place.from_tap), tap_of(one.place.to_tap)) == LAST_HOP
    assert one.packets == len(run.hits) and one.from_ns == run.hits[0].time_ns
    assert one.until_ns == UP and one.onset_uncertainty_ns == 0
    assert {tap_of(frame.tap) for frame in one.evidence} == {"leaf2-spine2"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hop", "parts", "outage"),
    [
        (LAST_HOP, {"until": 300 * MS}, PORT),  # it continues after the port is up
        (LAST_HOP, {"which": some(0.3)}, PORT),  # others pass meanwhile
        (("leaf1-spine2", "leaf2-spine2"), {}, PORT),  # another hop
        (("leaf2-spine*", "H3-leaf2"), {}, PORT),  # ways of all ports
        (LAST_HOP, {}, MrcPortOutage(address(4), 2, DOWN, UP)),  # another host
        (LAST_HOP, {}, MrcPortOutage(HOST, 2, DOWN + DECLARED_NS, None)),  # long before
    ],
)
def test_other_losses_stay_findings(tmp_path, monkeypatch, hop, parts, outage):
    options = {"begin": 100 * MS, "until": 240 * MS} | parts
    near, far = hop
    which = options.get("which", lambda packet: True)
    fault = between(near, far, drop, options["begin"], options["until"], which)
    case, run = case_with(tmp_path, monkeypatch, fault, outage)
    assert run.hits and not of_ports(case)
    found = list(hop_losses(case, Known()))
    assert sum(one.packets for one in found) == len(run.hits)
    (port,) = mrc_ports(case, Known())
    assert port.packets == 0 and port.place.to_tap is None


@pytest.mark.parametrize("also", [1, 3])
def test_losses_that_fit_outages_of_two_ports_are_of_neither(tmp_path, monkeypatch, also):
    fault = between(*LAST_HOP, drop, 100 * MS, 240 * MS)
    other = MrcPortOutage(HOST, also, DOWN, UP)
    case, run = case_with(tmp_path, monkeypatch, fault, other, PORT)
    assert run.hits and not of_ports(case)
    assert sum(one.packets for one in hop_losses(case, Known())) == len(run.hits)
    assert [one.packets for one in mrc_ports(case, Known())] == [0, 0]


def test_of_two_hops_that_lose_in_one_outage_none_is_explained(tmp_path, monkeypatch):
    fault = between(*LAST_HOP, drop, 100 * MS, 240 * MS)
    case, _ = case_with(tmp_path, monkeypatch, fault, PORT)
    (group,) = of_ports(case).values()
    monkeypatch.setattr(mrc, "losing_groups", lambda _: [group, replace(group)])
    assert not of_ports(case)


def test_flows_that_lost_nothing_there_are_not_excused(tmp_path, monkeypatch):
    fault = between(*LAST_HOP, drop, 100 * MS, 240 * MS)
    case, run = case_with(tmp_path, monkeypatch, fault, PORT)
    to_host = [flow for flow in case.flows if HOST in (flow.src, flow.dst)]
    (group,) = of_ports(case).values()
    lost = set(group.lost()["flow"].tolist())
    idle = next(flow for flow in to_host if flow.id not in lost)
    as_mrc = [structs.replace(f, mrc=None) if f in to_host else f for f in case.flows]
    case = replace(case, flows=as_mrc)
    (one,) = mrc_ports(case, Known())
    assert set(one.flows) == lost and one.confidence == "likely"
    assert idle.id in {affected.flow for affected in one.affected}
    known = Known([one])
    assert known.explains(STALL_CAUSES, min(lost), DOWN, UP)
    assert not known.explains(STALL_CAUSES, idle.id, DOWN, UP)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sports", "cause", "explained"),
    [
        ("lost", "port_down", True),
        ("others", "port_down", False),  # of another plane
        ("lost", "loss", True),  # nothing tells which values the port has
        ("nameless", "port_down", True),
    ],
)
def test_a_port_explains_only_losses_of_the_values_that_senders_retire(
    tmp_path, monkeypatch, sports, cause, explained
):
    fault = between(*LAST_HOP, drop, 100 * MS, 240 * MS)
    case, run = case_with(tmp_path, monkeypatch, fault, PORT)
    values = {
        "lost": [str(hit.packet.sport) for hit in run.hits],
        "others": ["1/0x12ab"],
        "nameless": ["other"],
    }[sports]
    retired = [SimpleNamespace(ev=ev, cause=cause, retired_time_ns=DOWN) for ev in values]
    mrc = SimpleNamespace(retirements=retired)
    case = replace(case, flows=[structs.replace(flow, mrc=mrc) for flow in case.flows])
    assert bool(of_ports(case)) == explained
    left = sum(one.packets for one in hop_losses(case, Known()))
    assert left == (0 if explained else len(run.hits))


@pytest.fixture
def made(tmp_path):
    """A capture at one end, and the truth."""

    def make(tap, **options):
        path, truth = tmp_path / f"{tap}.pcap", tmp_path / f"{tap}.json"
        assert generate_mrc(output=path, truth=truth, trim=0.01, tap=tap, **options) == 0
        return path, json.loads(truth.read_text())

    return make


def warnings(*paths, **options):
    found = analyze([str(path) for path in paths], AnalyzeOptions(**options)).diagnosis.findings
    return [f for f in found if f.severity != "note"]


def told(truth):
    """NACKs of trimmed packets by sender."""
    return {flow["src"]: flow["nacks"]["TRIMMED"] for flow in truth["flows"]}


@pytest.mark.parametrize(
    ("tap", "place", "confidence"),
    [("sender", "after the tap", "likely"), ("receiver", "before the tap", "proven")],
)
def test_one_tap(made, tap, place, confidence):
    path, truth = made(tap)
    found = warnings(path)
    assert {f.affected[0].src: f.packets for f in found} == told(truth)
    for one in found:
        assert (one.kind, one.severity, one.confidence) == ("queueing", "warning", confidence)
        assert (one.place.direction, one.queue_pairs) == (place, 1)
        assert (one.place.from_tap or one.place.to_tap) == path.name
        assert one.place.host == one.affected[0].dst
        assert f"are trimmed {place}: a queue is full" in one.sentence
        assert [e.time_ns for e in one.evidence] == [one.from_ns]


def test_nacks_without_the_packets(made):
    path, truth = made("sender")
    found = warnings(path, filter="mrc.nack")
    assert sorted(f.packets for f in found) == sorted(told(truth).values())
    for one in found:
        assert one.place.host in told(truth)
        assert (one.queue_pairs, one.of_packets) == (1, 0)
        assert "name trimmed packets that no tap saw" in one.sentence


def test_packets_trimmed_between_taps_are_not_counted_again(made):
    (first, truth), (second, _) = made("sender"), made("receiver")
    (found,) = warnings(first, second)
    assert (found.kind, found.packets) == ("queueing", sum(told(truth).values()))
    assert found.place.direction != "after the tap"


def test_no_trims(made, tmp_path):
    path = tmp_path / "clean.pcap"
    assert generate_mrc(output=path) == 0
    assert warnings(path) == []
