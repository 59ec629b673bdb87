"""Loops and missing routes: by hand, and of real routers in network namespaces."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import ExitStack
from dataclasses import replace

import jsonschema
import msgspec
import numpy as np
import pytest
from answers import recorded, traffic_of, truth
from eos_answers import eos_answers
from switch_lab import LAB, check_fabric, save

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.analyzer.wire.registry import read_ethers
from rocescope.discovery.discover import (
    discover_folder,
    failing_routes,
    hash_in_words,
    lost_members,
)
from rocescope.discovery.folder import NOT_ASKED, UNEXPECTED, read_folder
from rocescope.discovery.results import (
    ASKED,
    Asked,
    AskedCommand,
    Discovery,
    read_asked,
    write_asked,
)
from rocescope.discovery.tracing.paths import REASONS, trace_paths
from rocescope.replay.fabrics.topology import assemble
from rocescope.replay.flows.placement import place
from rocescope.replay.hashing.settings import HashSettings

# Loops and missing routes: by hand, and of real routers in network namespaces.

# Loops and missing routes: by hand, and of real routers in network namespaces.

QUESTIONS = {
    "route.json": "ip -j route",
    "addr.json": "ip -j -d addr",
    "neigh.json": "ip -j neigh",
    "rule.json": "ip -j rule",
    "rule6.json": "ip -6 -j rule",
    "sysctl": "sysctl net.ipv4.ip_forward net.ipv4.fib_multipath_hash_policy",
}


def run(command: str) -> bytes:
    return subprocess.run(command.split(), check=True, capture_output=True).stdout


def discovered(folder):
    found = discover_folder(folder, 10**9, 500)
    return found.fabric, {(r.kind, r.device, r.text) for r in found.report.remarks}


def route(switch, network, gateway, port):
    answer = eos_answers(switch)
    answer["eos-route.json"]["vrfs"]["default"]["routes"][network]["vias"] = [
        {"nexthopAddr": gateway, "interface": f"Ethernet{port}"}
    ]
    return answer


def test_sound_tables_have_no_remark(tmp_path):
    assert failing_routes(check_fabric(tmp_path, eos_answers).fabric) == []


def test_recorded_routers_have_no_remark(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    assert len(read_folder(folder)[0]) == 8
    assert failing_routes(discover_folder(folder, 10**9, 500).fabric) == []


def test_a_loop_and_a_missing_route_are_one_line_each(tmp_path):
    check_fabric(tmp_path, eos_answers)
    spine1, spine2 = LAB[2], LAB[3]
    save(tmp_path, "spine1", route(spine1, "10.1.2.0/24", "10.0.11.1", 1))
    answer = eos_answers(spine2)
    del answer["eos-route.json"]["vrfs"]["default"]["routes"]["10.1.1.0/24"]
    save(tmp_path, "spine2", answer)
    fabric, remarks = discovered(tmp_path)
    (host1, host2) = (fabric.host_name(host) for host in range(2))
    assert {one for one in remarks if one[0] in ("loop", "no route")} == {
        ("loop", "leaf1", f"packets to {host2} loop: leaf1 > spine1 > leaf1"),
        ("no route", "spine2", f"it has no route to {host1}"),
    }


def test_a_switch_without_ipv4_routes_does_not_forward_ipv4_by_its_ipv6_routes(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    table = json.loads((folder / "leaf1.route.json").read_text())
    kept = [one for one in table if not {"nhid", "nexthops", "gateway", "via"} & set(one)]
    assert 0 < len(kept) < len(table)
    (folder / "leaf1.route.json").write_text(json.dumps(kept))
    fabric, remarks = discovered(folder)
    assert [device for kind, device, _ in remarks if kind == "no route"] == ["leaf1"]
    traffic = traffic_of(fabric, truth(folder.parent, "healthy"))
    leaf1 = fabric.nodes.names.index("leaf1")
    at_leaf1 = fabric.attachments.switch[:, 0] == leaf1
    crosses = at_leaf1[traffic.src_host] & ~at_leaf1[traffic.dst_host] & ~traffic.keys.ipv6
    assert np.count_nonzero(crosses)
    assert trace_paths(traffic, fabric).placement.dropped[crosses].all()


def test_assumed_paths_are_no_loop(tmp_path):
    for switch in LAB:
        if switch.name != "spine1":
            save(tmp_path, switch.name, eos_answers(switch))
    fabric, remarks = discovered(tmp_path)
    assert not all(fabric.origin.tables)
    assert not [one for one in remarks if one[0] in ("loop", "no route")]


def test_a_switch_whose_table_could_not_be_read_is_no_host(tmp_path):
    """Without LLDP, its addresses tell where its links are."""
    for switch in LAB:
        answer = eos_answers(switch)
        answer["eos-lldp.json"] = {"lldpNeighbors": {}}
        if switch.name == "spine1":
            answer["eos-route.json"]["vrfs"]["default"]["routes"] = "x"
        save(tmp_path, switch.name, answer)
    fabric, remarks = discovered(tmp_path)
    spine1 = fabric.nodes.names.index("spine1")
    assert not fabric.origin.tables[spine1]
    assert fabric.nodes.names[fabric.switches :] == ("leaf1:Ethernet3", "leaf2:Ethernet3")
    assert len(fabric.origin.ports) == 6
    assert not [one for one in remarks if one[0] in ("loop", "no route")]


def test_a_loop_beyond_a_switch_without_tables_is_told(tmp_path):
    check_fabric(tmp_path, eos_answers)
    save(tmp_path, "spine1", route(LAB[2], "10.1.2.0/24", "10.0.11.1", 1))
    fabric = discover_folder(tmp_path, 10**9, 500).fabric
    names = fabric.nodes.names
    tables = ["" if name == "spine2" else told
              for name, told in zip(names, fabric.origin.tables, strict=False)]  # fmt: skip
    unread = replace(fabric, origin=fabric.origin._replace(tables=tuple(tables)))
    assert [note.kind for note in failing_routes(unread)] == ["loop"]
    tables = ["" if name == "spine1" else told
              for name, told in zip(names, fabric.origin.tables, strict=False)]  # fmt: skip
    unread = replace(fabric, origin=fabric.origin._replace(tables=tuple(tables)))
    assert failing_routes(unread) == []


def test_a_traced_path_ends_where_the_circle_closes(tmp_path):
    check_fabric(tmp_path, eos_answers)
    for number, spine in enumerate(LAB[2:], 1):
        save(tmp_path, spine.name, route(spine, "10.1.2.0/24", f"10.0.1{number}.1", 1))
    save(tmp_path, "leaf1", route(LAB[0], "10.1.2.0/24", "10.0.11.2", 1))
    fabric, _ = discovered(tmp_path)
    flows = [
        {"src": "10.1.1.2", "dst": "10.1.2.2", "sport": 49152},
        {"src": "10.1.2.2", "dst": "10.1.1.2", "sport": 49152},
    ]
    found = trace_paths(traffic_of(fabric, flows), fabric)
    assert REASONS[found.reason[0]] == "the tables form a loop"
    assert fabric.nodes.names[found.switch[0]] == "leaf1"
    links = [int(link) for link in found.placement.links[0] if link >= 0]
    names = [fabric.link_name(link) for link in links]
    assert names[1:] == ["leaf1>spine1", "spine1>leaf1"]
    assert np.count_nonzero(found.evidence[0]) == 3
    assert REASONS[found.reason[1]] == "the hash or the seed of the switch is not known"


@pytest.fixture
def routers(root, need_tool, tmp_path):
    """r1 - r2 - r3 with static routes; r1 and r3 have a network of hosts each, on swp1."""
    need_tool("ip")
    prefix = f"rsfail{os.getpid()}"
    with ExitStack() as stack:

        def do(name, command):
            return run(f"ip netns exec {prefix}{name} {command}")

        def cable(one, port, other, far, addresses):
            run(f"ip link add {port} netns {prefix}{one} type veth "
                f"peer name {far} netns {prefix}{other}")  # fmt: skip
            for name, end, own in ((one, port, addresses[0]), (other, far, addresses[1])):
                do(name, f"ip link set {end} up")
                if own:
                    do(name, f"ip address add {own} dev {end}")

        for name in ("r1", "r2", "r3"):
            run(f"ip netns add {prefix}{name}")
            stack.callback(run, f"ip netns del {prefix}{name}")
            do(name, "sysctl -q net.ipv4.ip_forward=1")
        cable("r1", "up12", "r2", "up21", ("10.0.12.1/30", "10.0.12.2/30"))
        cable("r2", "up23", "r3", "up32", ("10.0.23.1/30", "10.0.23.2/30"))
        cable("r1", "swp1", "r1", "far1", ("10.1.1.1/24", ""))
        cable("r3", "swp1", "r3", "far1", ("10.3.1.1/24", ""))
        do("r1", "ip route add 10.3.1.0/24 via 10.0.12.2")
        do("r2", "ip route add 10.3.1.0/24 via 10.0.23.2")
        do("r2", "ip route add 10.1.1.0/24 via 10.0.12.1")
        do("r3", "ip route add 10.1.1.0/24 via 10.0.23.1")

        def remarks():
            for name in ("r1", "r2", "r3"):
                for suffix, command in QUESTIONS.items():
                    (tmp_path / f"{name}.{suffix}").write_bytes(do(name, command))
            fabric, found = discovered(tmp_path)
            assert fabric.hosts == 2
            return found

        yield do, remarks


def test_what_real_routers_do_is_one_line_each(routers):
    do, remarks = routers
    assert remarks() == set()
    do("r2", "ip route replace 10.3.1.0/24 via 10.0.12.1")
    do("r2", "ip route del 10.1.1.0/24")
    do("r1", "ip rule add from 10.1.1.0/24 lookup 100")
    do("r1", "ip link add vni10 type vxlan id 10 dstport 4789 dev up12")
    assert remarks() == {
        ("loop", "r1", "packets to r3:swp1 loop: r1 > r2 > r1"),
        ("no route", "r2", "it has no route to r1:swp1"),
        ("not represented", "r1", "policy routing: 1 IPv4 rules choose other tables, which are "
         "not read, such as `src 10.1.1.0 srclen 24 table 100`"),
        ("not represented", "r1", "VXLAN on vni10: the tables of the underlay place the outer "
         "packets, and overlay routes are not read"),
    }  # fmt: skip


def test_a_blackhole_is_no_route(routers):
    do, remarks = routers
    do("r2", "ip route replace blackhole 10.3.1.0/24")
    assert remarks() == {("no route", "r2", "it has no route to r3:swp1")}


# Equal-cost members that switches have lost.


def lost(folder):
    answers, _ = read_folder(folder)
    devices = [one.device for one in answers]
    return lost_members(assemble("lab", devices, 10**10, 500, "tables", strict=True), answers)


def test_frr_after_a_flap(tmp_path):
    notes = lost(recorded(tmp_path) / "flapped")
    assert [(note.device, note.text.partition(",")[0]) for note in notes] == [
        ("leaf1", "swp3 to spine2 swp1 has a link and its LLDP peer"),
        ("spine2", "swp1 to leaf1 swp3 has a link and its LLDP peer"),
    ]
    assert "2 of 2 equal-cost groups" in notes[0].text
    assert notes[0].text.endswith("to h3, h4; FRR calls it installed in 4 routes")


def test_none_on_a_clean_fabric(tmp_path):
    assert not lost(recorded(tmp_path) / "healthy")


def test_a_link_that_is_down_is_not_lost_silently(tmp_path):
    folder = recorded(tmp_path) / "flapped"
    file = folder / "leaf1.addr.json"
    ports = json.loads(file.read_text())
    (swp3,) = [port for port in ports if port.get("ifname") == "swp3"]
    swp3["flags"].remove("LOWER_UP")
    file.write_text(json.dumps(ports))
    assert not lost(folder)


def test_one_route_of_several(tmp_path):
    """leaf2 lost swp1 towards h1 only."""
    folder = recorded(tmp_path) / "healthy"
    file = folder / "leaf2.route.json"
    routes = json.loads(file.read_text())
    (route,) = [r for r in routes if r["dst"] == "10.1.1.0/24"]
    del route["nhid"]
    route["nexthops"] = [hop for hop in route["nexthops"] if hop["dev"] != "swp1"]
    file.write_text(json.dumps(routes))
    (note,) = lost(folder)
    assert (note.device, note.text.split()[0]) == ("leaf2", "swp1")
    assert "but 1 of 2 equal-cost groups over shortest paths leave it out: to h1" in note.text
    assert note.text.endswith("FRR calls it installed in 1 routes")


# From a folder of answers to a fabric and its report.


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
    fabric, report, _ = discover_folder(folder, 10**10, 500)
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


# What was asked of devices.

# What was asked of devices.

ROUTE = AskedCommand(
    suffix="route.json", command="ip -j route", began_ns=1, ended_ns=5, output_bytes=9, problem=""
)
LLDP = AskedCommand(
    suffix="lldp.json", command="lldpctl", began_ns=2, ended_ns=6, output_bytes=0, problem="refused"
)


def test_it_comes_back_as_it_was_written(tmp_path):
    asked = {
        "leaf1": Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE, LLDP]),
        "h1": Asked(dialect="linux", kind="host", ssh="h1", problem="no answer"),
    }
    write_asked(tmp_path, asked)
    assert read_asked(tmp_path) == asked


def test_problems_and_times_of_questions():
    one = Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE, LLDP])
    assert [one.problem_of(s) for s in ("route.json", "lldp.json", "sysctl")] == ["", "refused", ""]
    assert [one.time_ns(s) for s in ("route.json", "sysctl")] == [5, None]


def test_no_file_and_other_content(tmp_path):
    assert read_asked(tmp_path) == {}
    asked = Asked(dialect="linux", kind="switch", ssh="leaf1", answers=[ROUTE])
    write_asked(tmp_path, {"leaf1": asked})
    good = (tmp_path / ASKED).read_bytes()
    huge = good.replace(b'"ended_ns": 5', b'"ended_ns": %d' % 10**24)
    early = good.replace(b'"ended_ns": 5', b'"ended_ns": -5')
    assert good not in (huge, early)
    other = (b"[", b"[]", b'{"leaf1": {"dialect": 1}}', b"\xff", b"[" * 100_000)
    for content in (*other, huge, early):
        (tmp_path / ASKED).write_bytes(content)
        with pytest.raises(UsageError, match=r"asked.json: not a list of asked devices"):
            read_asked(tmp_path)


# The JSON of a discovery.


def test_a_report_fits_its_schema_and_comes_back(tmp_path):
    report = discover_folder(recorded(tmp_path) / "flapped", 10**10, 500).report
    data = msgspec.json.encode(report)
    jsonschema.validate(msgspec.json.decode(data), msgspec.json.schema(Discovery))
    assert msgspec.json.decode(data, type=Discovery) == report


# Folders with raw answers.


def test_devices_their_dialects_and_what_was_not_asked(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "leaf2.lldp.json").unlink()
    answers, unreadable = read_folder(folder)
    assert not unreadable
    assert {one.device.name: one.dialect.name for one in answers} == {
        **{f"h{i}": "linux" for i in range(1, 5)},
        **dict.fromkeys(("leaf1", "leaf2", "spine1", "spine2"), "frr"),
    }
    missing = {one.device.name: [q.suffix for q in one.missing] for one in answers}
    assert missing["leaf1"] == ["bucket.json", "rule.json", "rule6.json"]
    assert missing["leaf2"] == ["bucket.json", "rule.json", "rule6.json", "lldp.json"]


def test_a_device_with_half_an_answer_is_named_and_the_others_are_read(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / "spine2.route.json"
    file.write_bytes(file.read_bytes()[:1000])
    answers, unreadable = read_folder(folder)
    assert len(answers) == 7
    assert [one.name for one in unreadable] == ["spine2"]
    assert "spine2.route.json: not JSON" in unreadable[0].reason


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (answer, kind)
        for answer in (
            "route.json",
            "nexthop.json",
            "addr.json",
            "lldp.json",
            "sysctl",
            "rule.json",
        )
        for kind in ("pipe", "device", "sparse")
    ],
)
def test_an_answer_that_is_no_file_is_never_read_without_end(tmp_path, answer, kind):
    folder = recorded(tmp_path) / "healthy"
    file = folder / f"leaf1.{answer}"
    file.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as sparse:
            sparse.truncate(1 << 40)
    answers, unread = read_folder(folder)
    assert len(answers) == 8 - len(unread)
    reasons = [one.reason for one in unread]
    (reason,) = reasons + [text for one in answers for text in one.device.unexpected]
    assert f"leaf1.{answer}: " in reason
    assert ("larger than" if kind == "sparse" else "not a regular file") in reason


def test_the_list_of_asked_devices_may_be_a_pipe(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    os.mkfifo(folder / "asked.json")
    with pytest.raises(UsageError, match=r"asked\.json: not a regular file"):
        read_folder(folder)


def test_folders_without_an_answer(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(UsageError, match=r"has no readable NAME.route.json; rocescope discover"):
        read_folder(tmp_path)
    (tmp_path / "r.route.json").write_text("x: [")
    with pytest.raises(UsageError, match=r"no readable NAME.route.json; .*r.route.json: not JSON"):
        read_folder(tmp_path)


def test_older_answers_beside_those_of_a_collection(tmp_path):
    """A device that asked.json does not name, and the answer of an earlier dialect."""
    folder = recorded(tmp_path) / "healthy"
    asked = {
        name: Asked(dialect="linux", kind="switch", ssh=name)
        for name in ("leaf1", "leaf2", "spine1", "spine2", "h1", "h2", "h3")
    }
    write_asked(folder, asked)
    answers, (other,) = read_folder(folder)
    assert {one.device.name for one in answers} == set(asked)
    assert (other.name, other.kind) == ("h4", NOT_ASKED)
    assert [one.installed for one in answers] == [{}] * 7


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        ("route.json", '[{"dst":"10.0.0.0/8","dev":"x","via":{"family":"inet6"}}]', "has no host"),
        ("nexthop.json", '[{"id":7,"group":[{"weight":3}]}]', r"\[0\].group\[0\]: it has no id"),
        ("sysctl", "net.ipv4.fib_multipath_hash_policy = 77", "must be 0 to 3, not 77"),
        ("sysctl", "x = 1\nnet.ipv4.fib_multipath_hash_seed = -5", ":2: .* not -5"),
        ("sysctl", f"net.ipv4.fib_multipath_hash_seed = {1 << 70}", "must be 0 to 4,294,967,295"),
        ("sysctl", "net.ipv6.fib_multipath_hash_fields = 4096", "must be 0 to 4,095, not 4096"),
    ],
)
def test_odd_answers_of_one_device_are_named(suffix, content, reason, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / f"leaf1.{suffix}").write_text(content)
    answers, (unread,) = read_folder(folder)
    assert len(answers) == 7
    assert unread.name == "leaf1"
    assert re.search(rf"leaf1.{suffix}.*{reason}", unread.reason)


@pytest.mark.parametrize(
    "suffix",
    ["lldp.json", "addr.json", "neigh.json", "rule.json", "route6.json", "frr-route.json"],
)
def test_half_an_answer_beside_the_routes_leaves_the_routes(suffix, tmp_path):
    folder = recorded(tmp_path) / "healthy"
    file = folder / f"leaf1.{suffix}"
    before = read_folder(folder)[0]
    file.write_bytes(b'[{"dst": "10.' if suffix == "rule.json" else file.read_bytes()[:150])
    answers, unread = read_folder(folder)
    assert unread == []
    told = {one.device.name: one.device.unexpected for one in answers if one.device.unexpected}
    (text,) = told.pop("leaf1")
    assert text.startswith(f"leaf1.{suffix}: ")
    assert told == {}
    kept, whole = (
        [r for one in found if one.device.name == "leaf1" for r in one.device.routes]
        for found in (answers, before)
    )
    assert kept == [r for r in whole if r.network.version == 4 or suffix != "route6.json"]
    report = discover_folder(folder, 10**10, 500).report
    assert (report.switches, report.hosts, len(report.links)) == (4, 4, 12)
    assert [one.device for one in report.remarks if one.kind == UNEXPECTED] == ["leaf1"]


def test_when_no_device_answers_the_devices_are_named(tmp_path):
    """Not the folder, which may be a temporary one."""
    asked = {
        f"leaf{i}": Asked(
            dialect="linux", kind="switch", ssh=f"leaf{i}", answers=[], problem="no route to host"
        )
        for i in range(9)
    }
    write_asked(tmp_path, asked)
    with pytest.raises(RocescopeError) as error:
        read_folder(tmp_path)
    assert error.value.exit_code == 1
    assert str(error.value).startswith("no device answered: leaf0: no route to host; leaf1: ")
    assert str(error.value).endswith("; and 4 more")


def test_names_of_addresses_are_those_that_read_ethers_takes(tmp_path):
    """Of recorded routers: an address names the port that has it, a shared one nobody."""
    folder = recorded(tmp_path) / "healthy"
    result = discover_folder(folder, 10**9, 500)
    path = tmp_path / "ethers"
    path.write_text("".join(f"{mac} {name}\n" for mac, name in result.ethers.items()))
    names = read_ethers(str(path))
    answers, _ = read_folder(folder)
    owners = {}
    for device in (each.device for each in answers):
        for port in device.interfaces or ():
            owners.setdefault(port.mac, []).append((device.name, port.name))
    expected = {
        int(mac.replace(":", ""), 16): f"{ports[0][0]}:{ports[0][1]}"
        for mac, ports in owners.items()
        if len(ports) == 1 and mac not in ("", "00:00:00:00:00:00")
    }
    assert expected
    assert expected.items() <= names.items()
    assert len({name.partition(":")[0] for name in names.values()}) > 3
