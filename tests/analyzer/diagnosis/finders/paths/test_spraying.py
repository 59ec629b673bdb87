"""Who sprays."""

from __future__ import annotations

from captures import data
from cases import case_of
from conformance_traces import write

from rocescope.analyzer.diagnosis.finders.paths.spraying import sprays
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions


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
