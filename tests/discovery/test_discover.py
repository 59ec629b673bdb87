"""From a folder of answers to a fabric and its report."""

from __future__ import annotations

import json

import pytest
from answers import recorded, traffic_of, truth

from rocescope.discovery.discover import discover_folder, hash_in_words
from rocescope.replay.flows.placement import place
from rocescope.replay.hashing.settings import HashSettings


@pytest.mark.parametrize("name", ["healthy", "flapped"])
def test_paths_of_256_flows_are_those_of_the_routers(name, tmp_path):
    """IPv4 and IPv6, parallel links, BGP unnumbered: every hop as `ip route get` told it."""
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / name, 10**10, 500).fabric
    flows = truth(folder, name)
    traffic = traffic_of(fabric, flows)
    placement = place(traffic, fabric, fabric.hash_settings)
    assert not placement.dropped.any()
    for flow, links in zip(flows, placement.links.tolist(), strict=True):
        path = []
        for link in links[1:]:
            if link >= 0:
                source = fabric.nodes.names[int(fabric.links.source[link])]
                path.append([source, fabric.origin.ports[link // 2][link % 2]])
        assert path == flow["path"]


def test_the_report(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    report = discover_folder(folder, 10**10, 500).report
    assert (report.switches, report.hosts, len(report.links)) == (4, 4, 12)
    assert [(r.kind, r.device) for r in report.remarks] == [("management network", "")]
    assert not report.switches_without_tables
    assert {d.name: d.hash for d in report.devices if d.kind == "switch"} == {
        "leaf1": "linux policy 1, seed 1000",
        "leaf2": "linux policy 1, seed 1077",
        "spine1": "linux policy 1, seed 1154",
        "spine2": "linux policy 1, seed 1231",
    }
    assert {d.name for d in report.devices if d.kind == "host"} == {"h1", "h2", "h3", "h4"}


def test_a_switch_that_did_not_answer_is_named(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "spine2.route.json").write_text("[")
    fabric, report = discover_folder(folder, 10**10, 500)
    assert [remark.kind for remark in report.remarks] == ["unreadable", "management network"]
    assert report.remarks[0].device == "spine2"
    assert report.switches_without_tables == ["via spine2"]
    # Of the networks behind it only its own loopback is not known from others.
    hosts = [fabric.host_name(host) for host in range(fabric.hosts)]
    assert hosts == ["h1", "h2", "h3", "h4", "10.255.0.4/32"]


def test_a_member_that_ipv6_alone_has_lost(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / "leaf2.route6.json"
    routes = json.loads(file.read_text())
    for route in routes:
        if len(route.get("nexthops", ())) > 1:
            del route["nhid"]
            route["nexthops"] = [hop for hop in route["nexthops"] if hop["dev"] != "swp1"]
    file.write_text(json.dumps(routes))
    report = discover_folder(folder, 10**10, 500).report
    (lost,) = [one for one in report.remarks if one.kind == "lost member"]
    assert (lost.device, lost.text.split()[:2]) == ("leaf2", ["IPv6:", "swp1"])
    assert "but 2 of 2 equal-cost groups over shortest paths leave it out: to h1, h2" in lost.text


def test_a_seed_that_is_not_read_is_unknown(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "leaf1.sysctl").unlink()
    sysctl = folder / "leaf2.sysctl"
    sysctl.write_text(sysctl.read_text().replace("seed = 1077", "seed = 0"))
    report = discover_folder(folder, 10**10, 500).report
    told = {d.name: d.hash for d in report.devices}
    assert (told["leaf1"], told["leaf2"]) == ("unknown", "linux policy 1, seed unknown")
    assert "hash policy and seed" in report.devices[4].not_read


def test_names_with_anything_in_them_stay_text(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / "leaf1.lldp.json"
    answer = json.loads(file.read_text())
    answer["lldp"][0]["interface"][0]["chassis"][0]["name"][0]["value"] = "\x1b[2Jspine1"
    file.write_text(json.dumps(answer))
    assert len(discover_folder(folder, 10**10, 500).report.links) == 12


def test_hashes_in_words():
    assert hash_in_words(None) == "unknown"
    assert hash_in_words(HashSettings(seed=7)) == "linux policy 1, seed 7"
