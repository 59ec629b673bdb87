"""Idle links beside shared ones, and who sprays."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

import factories_results as factories
import msgspec
import pytest
from captures import DATA, data
from cases import case_of
from conformance_traces import last, write
from fabric_captures import (
    MS,
    US,
    Pair,
    between,
    diagnosis,
    drop,
    queue,
    simulate,
    some,
    usual_pairs,
)
from fabric_captures import write as write_taps

from rocescope.analyzer.diagnosis.finders import placement
from rocescope.analyzer.diagnosis.finders.placement import CHANCE, Choice, chance_of_idle, sprays
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.diagnosis import Place

FABRIC = sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap.*"))


def test_chance_of_idle_links():
    assert chance_of_idle(2, 1, 1) == 1
    assert chance_of_idle(2, 1, 3) == pytest.approx(0.25)
    assert chance_of_idle(4, 2, 10) == pytest.approx(6 / 1024)
    assert chance_of_idle(4, 1, 60) < CHANCE


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_flows_that_share_a_link_one_after_the_other_do_not_collide(at_once, tmp_path):
    pairs = [
        Pair(1, 3, 0x100 + n, 50_000 + n, start=n // at_once * 100 * MS, gap=400 * US)
        for n in range(4)
    ]
    for pair in pairs:
        pair.stop = pair.start + 80 * MS
    paths = write_taps(tmp_path, simulate(pairs, route=lambda packet, now: 2).taps)
    found = [f for f in diagnosis(paths).findings if f.kind == "collision"]
    assert len(found) == (at_once > 1)
    if found:
        assert f"{at_once} flows share the others" in found[0].sentence
        assert len(found[0].flows) == at_once


def placements(filter=None, names=None):
    options = AnalyzeOptions(filter=filter, tap_names=names or {})
    findings = analyze([str(path) for path in FABRIC], options).diagnosis.findings
    return [f for f in findings if f.kind in ("collision", "polarisation")]


def test_every_link_of_the_clean_fabric_carries_flows():
    assert placements() == []


@pytest.fixture(scope="module")
def over_two_spines():
    """Ports of the flows that leaf1 sends over spine1, and over spine2."""
    options = AnalyzeOptions(path_by="entropy")
    flows = analyze([str(path) for path in FABRIC], options).flows
    return [
        [
            flow.paths[0].path
            for flow in flows
            if flow.payload_bytes
            and flow.src.startswith("10.1.")
            and flow.dst == "10.2.3.10"
            and any(tap.startswith(f"leaf1-spine{n}") for tap in flow.taps)
        ]
        for n in (1, 2)
    ]


def only(*ports):
    """A filter for packets of these ports to one host."""
    return f"udp.srcport in {{{', '.join(ports)}}} and ip.dst == 10.2.3.10"


def test_a_few_flows_on_two_links_collide(over_two_spines):
    one, two = over_two_spines
    (found,) = placements(only(*one[:2], *two[:1]))
    assert (found.kind, found.severity, found.place.device) == ("collision", "note", "leaf1")
    assert "leaf1 leaves 2 of 4 parallel links idle: 3 flows share the others" in found.sentence


@pytest.fixture(scope="module")
def over_one_spine(tmp_path_factory):
    """Captures of four queue pairs: all requests take spine1, and ACKs take all spines in turn."""
    pairs = usual_pairs(hosts=[(1, 3), (2, 4)])

    def route(packet, now):
        return 1 if packet.dst in (3, 4) else 1 + packet.sport % 4

    pairs = [replace(pair, sport=50_000 + n) for n, pair in enumerate(pairs)]
    return write_taps(tmp_path_factory.mktemp("taps"), simulate(pairs, route=route).taps)


def collisions(paths):
    return [f.sentence for f in diagnosis(paths).findings if f.kind == "collision"]


def test_flows_that_all_take_one_link_collide(over_one_spine):
    """The other links lead to spines that have links to leaf2 as well."""
    (sentence,) = collisions(over_one_spine)
    assert "leaf1 leaves 3 of 4 parallel links idle: 4 flows share the others" in sentence


def test_links_of_unknown_ends_are_not_parallel(over_one_spine):
    """Without the links between the other spines and leaf2 nothing tells that they lead there."""
    known = [path for path in over_one_spine if path.stem[:-1] != "leaf2-spine"]
    known += [path for path in over_one_spine if path.stem == "leaf2-spine1"]
    assert len(known) == len(over_one_spine) - 3
    assert collisions(known) == []


@pytest.mark.parametrize("fault", ["loss", "slow", "queue"])
def test_sharing_a_link_makes_queues_but_loses_nothing_at_random(fault, tmp_path):
    """Leaf 1 leaves two links idle: that is worth a warning where packets queue for it, unless as
    many packets pass the other link without a queue."""
    slow = queue("H*-leaf1", "leaf1-spine1", 8e6)
    lossy = between("leaf1-spine1", "leaf2-spine1", drop, which=some(0.05))
    most = 1 if fault == "queue" else 0  # of the flows over the link, or half of them
    run = simulate(
        fault=lossy if fault == "loss" else slow,
        route=lambda packet, now: 2 if packet.sport % (2 + 2 * most) == 1 else 1,
    )
    found = diagnosis(write_taps(tmp_path, run.taps)).findings
    (shared,) = (f for f in found if f.kind == "collision" and f.place.device == "leaf1")
    assert shared.severity == ("warning" if fault == "queue" else "note")
    assert shared.place.to_tap == ("leaf1-spine1.pcap" if fault == "queue" else None)
    assert ("and wait for up to" in shared.sentence) == (fault == "queue")
    queues = [f.severity for f in found if f.kind == "queueing" and f.place.device == "leaf1"]
    assert queues == (["warning"] if fault == "slow" else [])


@pytest.mark.parametrize(
    ("begin", "flows", "shared"),
    [(0, [0, 1], True), (5, [0], True), (15, [0], False), (0, [0, 2], False)],
    ids=["both", "one waits", "the other ended", "a flow of another link waits"],
)
def test_a_queue_belongs_to_the_flows_that_share_the_link_then(begin, flows, shared):
    rows = [(n, at) for n, ats in enumerate([(0, 20), (0, 10), (0, 20)]) for at in ats]
    case = case_of(
        [last(at, dest_qp=0x100 + n, at=at) for n, at in sorted(rows, key=itemgetter(1))]
    )
    found = msgspec.structs.replace(
        factories.diagnosis().findings[0],
        kind="queueing",
        place=Place(device="leaf1", to_tap="a"),
        from_ns=case.first_ns + begin * US,
        until_ns=None,
        flows=flows,
    )
    choice = Choice("leaf1", {"a": [0, 1], "b": [2]})
    queues = placement._queues(case, Known([found]), choice, ["a"])
    assert queues == ([found] if shared else [])


def test_idle_links_beyond_chance_are_polarisation(over_two_spines, monkeypatch):
    """Six flows leave two of four links idle with a chance of 9 %."""
    one, two = over_two_spines
    assert chance_of_idle(4, 2, len(one) + len(two)) == pytest.approx(6 / 64)
    monkeypatch.setattr(placement, "CHANCE", 0.1)
    (found,) = placements(only(*one, *two))
    assert found.kind == "polarisation"


def test_hosts_are_not_parallel(over_two_spines):
    """Packets to one host leave its neighbour's link idle."""
    found = placements("ip.dst == 10.2.3.10")
    assert found == []


def test_names_of_other_forms_tell_no_idle_link():
    """Interfaces of a live session: leaf1:spine1. The links of its hosts are not parallel to it."""
    names = {str(path): f"pod.{path.name.split('.')[0].replace('-', ':')}" for path in FABRIC}
    assert placements("ip.dst == 10.2.3.10", names) == []


def found(ports):
    rows = [write(n, ip_id=n, udp_sport=port) for n, port in enumerate(ports)]
    return list(sprays(case_of(rows), Known()))


def test_a_host_that_alternates():
    (one,) = found([50_000 + n % 4 for n in range(40)])
    assert (one.kind, one.severity, one.place.host) == ("spraying", "note", "10.0.0.1")
    assert "10.0.0.1 sprays 1 flow over 4 source ports" in one.sentence


def test_a_flow_that_moved_does_not_spray():
    assert found([50_000] * 20 + [50_001] * 20) == []


def test_one_path():
    assert found([50_000] * 20) == []


def test_a_switch_that_sprays_over_parallel_taps():
    rows = [write(n, ip_id=n, tap=n % 4) for n in range(400)]
    (one,) = sprays(case_of(rows, taps=("s1", "s2", "s3", "s4")), Known())
    assert "switches spray 1 flow over 4 parallel taps" in one.sentence


def test_flows_of_acks_among_them_are_counted():
    """Everything else about spraying counts flows that carry data."""
    names = [f"leafspine/r09_packet_spray_h1/leaf2-spine{n}" for n in (1, 2, 3, 4)]
    found = analyze([str(data(name)) for name in names], AnalyzeOptions()).diagnosis.findings
    (one,) = (finding for finding in found if finding.kind == "spraying")
    assert "switches spray 6 flows (2 of ACKs) over 4 parallel taps" in one.sentence
