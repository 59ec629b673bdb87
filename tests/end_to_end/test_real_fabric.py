"""`rocescope discover` on real FRR, lldpd and sshd, as a user calls it."""

from __future__ import annotations

import json
import signal
import struct
import threading

import numpy as np
import pytest
from real_fabric import DEVICES, HOSTS, SEEDS, cables, real_fabric
from router_namespaces import frames, mac
from sshd import READER
from waiting import until

from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.follow import gate_script
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import packet_keys


@pytest.fixture(scope="module")
def fabric(root, need_tool, tmp_path_factory):
    for tool in ("sshd", "lldpd", "vtysh", "ip", "unshare", "nsenter"):
        need_tool(tool)
    with real_fabric(tmp_path_factory.mktemp("fabric")) as fabric:
        yield fabric


def report_of(fabric, inventory, *options):
    done = fabric.rocescope("discover", inventory, "--format", "json", *options)
    assert "Traceback" not in done.stderr
    return done, json.loads(done.stdout or "null")


@pytest.mark.thorough
def test_the_fabric_is_what_was_wired(fabric, tmp_path):
    file, raw = tmp_path / "fabric.yaml", tmp_path / "raw"
    done, report = report_of(fabric, fabric.inventory(), "-o", file, "--raw", raw)
    assert (done.returncode, done.stderr) == (0, "")
    assert (report["switches"], report["hosts"]) == (4, 4)
    found = parse_fabric(str(file))
    names, links = found.nodes.names, found.links
    wired = {
        frozenset([(a, port_a), (b, port_b)]) for a, port_a, b, port_b in cables()
    }  # fmt: skip
    assert wired == {
        frozenset(
            [
                (names[int(links.source[2 * i])], found.origin.ports[i][0]),
                (names[int(links.target[2 * i])], found.origin.ports[i][1]),
            ]
        )
        for i in range(len(links.source) // 2)
    }
    assert all("LLDP" in evidence for evidence in found.origin.links)
    seeds = {names[i]: found.hash_settings[i].seed for i in range(found.switches)}
    assert seeds == SEEDS
    assert {r["kind"] for r in report["remarks"]} <= {"management network", "address families"}
    of_rdma = ("queue pairs and processes", "network ports of RDMA devices")
    for device in report["devices"]:
        # The kernel of the tests may have no RDMA.
        without = [text for text in device["not_read"] if not text.startswith(of_rdma)]
        assert without == []
        for command in device["commands"]:
            if command["file"].endswith((".qp.json", ".agent.json", ".rdma.json")):
                continue
            assert (raw / command["file"]).stat().st_size == command["output_bytes"]
            assert command["problem"] is None
    offline = fabric.rocescope("discover", raw, "--format", "json")
    again = json.loads(offline.stdout)
    assert {**again, "source": ""} == {**report, "source": ""}


@pytest.mark.thorough
def test_one_switch_with_a_wrong_host_key_and_one_that_is_off(fabric):
    """Both are named, and the others are read."""
    known = fabric.home / ".ssh" / "known_hosts"
    config = fabric.home / ".ssh" / "config"
    kept, kept_config = known.read_text(), config.read_text()
    spine2, h4 = fabric.devices["spine2"], fabric.devices["h4"]
    try:
        wrong = fabric.devices["leaf1"].host_key
        known.write_text(
            kept.replace(f"{spine2.address} {spine2.host_key}", f"{spine2.address} {wrong}")
        )
        config.write_text(
            kept_config.replace(f"{h4.address}\n", "192.168.100.99\n  ConnectTimeout 1\n")
        )
        done, report = report_of(fabric, fabric.inventory())
    finally:
        known.write_text(kept)
        config.write_text(kept_config)
    assert done.returncode == 1
    silent = {r["device"]: r["text"] for r in report["remarks"] if r["kind"] == "no answer"}
    assert set(silent) == {"spine2", "h4"}
    assert silent["spine2"].startswith("the host key is not in known_hosts, or differs")
    assert "via spine2" in report["switches_without_tables"]
    assert len(report["devices"]) == 6


@pytest.mark.thorough
def test_a_user_without_rights_behind_the_gate(fabric):
    """Everything but what needs root is read, without sudo."""
    line = f'restrict,command="/run/lab/gate" {fabric.public_key}\n'
    for device in fabric.devices.values():
        gate = device.folder / "gate"
        gate.write_text(gate_script(DIALECTS["frr"], READER))
        gate.chmod(0o755)
        (device.folder / f"authorized_{READER}").write_text(line)
    fabric.write_ssh_config(READER)
    try:
        done, report = report_of(fabric, fabric.inventory())
    finally:
        fabric.write_ssh_config("root")
    assert done.returncode == 0
    assert len(report["links"]) == len(cables())
    for device in report["devices"]:
        missing = {text.partition(" (")[0] for text in device["not_read"]}
        missing -= {"queue pairs and processes", "network ports of RDMA devices"}
        frr = {"FRR's view of the routes"} if device["name"] in SEEDS else set()
        assert missing == {"LLDP neighbours"} | frr


HOSTILE = r"""#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in
'ip -j route') yes '[{"dst":"10.0.0.0/8","dev":"x"},' ;;
'ip -6 -j route') printf '[{"dst":"\033[2J"}]' ;;
*) printf '\033]0;owned\007' >&2; cat /dev/zero >&2 ;;
esac
"""


@pytest.mark.thorough
def test_a_hostile_switch_harms_nothing(fabric):
    """Endless output, escape sequences, endless errors: one line, and no more memory."""
    script = fabric.folder / "hostile"
    script.write_text(HOSTILE)
    script.chmod(0o755)
    authorized = fabric.devices["h1"].folder / "authorized_root"
    kept = authorized.read_text()
    try:
        authorized.write_text(f'restrict,command="{script}" {fabric.public_key}\n')
        done = fabric.rocescope("discover", fabric.inventory(), "--max-answer", "16MiB")
    finally:
        authorized.write_text(kept)
    assert done.returncode == 1
    assert "unreadable: h1: `ip -j route`: more than 16 MiB of output" in done.stdout
    assert not set(done.stdout + done.stderr) & {"\x1b", "\x07"}
    assert "Traceback" not in done.stderr


def both_said_it(events, before, after):
    """Whether the routers of the flap have told all moves from the one trace to the other."""
    links = dict(before)
    for event in list(events):
        links |= {move["src_port"]: move["after"] for move in event["moves"]}
    return links == after and len({name for event in events for name in event["devices"]}) == 2


@pytest.mark.thorough
def test_flows_that_a_flap_moves_are_followed_over_ssh(fabric, tmp_path):
    """The events lead from the trace before to the trace after, and name the two routers."""
    file, flows = tmp_path / "fabric.yaml", tmp_path / "flows.pcap"
    fabric.rocescope("discover", fabric.inventory(), "-o", file)
    keys = packet_keys(["10.1.1.10"] * 128, ["10.2.3.10"] * 128, np.arange(50000, 50128))
    with flows.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames(keys, mac(1, 1, 1))):
            out.write(struct.pack("<IIII", 1, number, len(frame), len(frame)) + frame)

    def traced():
        done = fabric.rocescope("trace", flows, "--fabric", file, "--format", "json")
        found = json.loads(done.stdout)["flows"]
        return {flow["src_port"]: flow["links"] for flow in found if flow["complete"]}

    links = traced()
    assert len(links) == 128
    words = ("trace", flows, "--fabric", file, "--devices", fabric.inventory(), "--follow")
    with fabric.started(*words, "--format", "json") as process:
        began = json.loads(process.stdout.readline())
        assert (began["kind"], began["lost_devices"]) == ("began", [])
        told = []
        reading = threading.Thread(target=lambda: told.extend(map(json.loads, process.stdout)))
        reading.start()
        try:
            fabric.flap("leaf1", "swp4")
            fabric.rocescope("discover", fabric.inventory(), "-o", file)
            after = traced()
            until(lambda: both_said_it(told, links, after))
        finally:
            process.send_signal(signal.SIGINT)
            reading.join()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")
    *events, ended = told
    assert (ended["kind"], ended["lost_devices"], ended["complete_flows"]) == ("ended", [], 128)
    assert {event["kind"] for event in events} == {"changed"}
    assert {name for event in events for name in event["devices"]} == {"leaf1", "spine2"}
    for event in events:
        for move in event["moves"]:
            assert links[move["src_port"]] == move["before"]
            links[move["src_port"]] = move["after"]
    assert links == after


@pytest.mark.thorough
def test_a_flap_leaves_a_lost_member(fabric):
    """The last test: FRR 8.4.4 does not put the member back."""
    fabric.flap("leaf1", "swp3")
    done, report = report_of(fabric, fabric.inventory())
    assert done.returncode == 0
    lost = [r for r in report["remarks"] if r["kind"] == "lost member"]
    assert ("leaf1", "swp3 to spine2 swp1 has a link and its LLDP peer") in {
        (r["device"], r["text"].partition(",")[0]) for r in lost
    }
    assert {r["device"] for r in lost} <= {"leaf1", "spine2"}
    assert set(DEVICES) == {d["name"] for d in report["devices"]} >= set(HOSTS)
