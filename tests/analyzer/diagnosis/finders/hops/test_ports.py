"""Losses on the last hop to a host are the outage of its port, if they are nothing else."""

from __future__ import annotations

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

from rocescope.analyzer.diagnosis.finders.hops import ports
from rocescope.analyzer.diagnosis.finders.hops.losses import hop_losses
from rocescope.analyzer.diagnosis.finders.hops.ports import DECLARED_NS, of_ports
from rocescope.analyzer.diagnosis.finders.hosts.mrc_path import mrc_ports
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.pipeline import pipeline
from rocescope.analyzer.results.mrc import MrcPortOutage

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
    monkeypatch.setattr(ports, "losing_groups", lambda _: [group, replace(group)])
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
    assert known.explains("stalled", min(lost), DOWN, UP)
    assert not known.explains("stalled", idle.id, DOWN, UP)


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
