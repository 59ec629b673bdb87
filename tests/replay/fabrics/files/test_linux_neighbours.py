"""Interfaces and neighbours as Linux prints them; real answers are in test_assemble.py."""

from __future__ import annotations

import json

import pytest
from answers import recorded

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files.linux_neighbours import (
    advertised_of,
    interfaces_of,
    policies_of,
    resolved_of,
)
from rocescope.replay.fabrics.files.linux_tables import read_device


def test_real_answers(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    ports = {port.name: port for port in interfaces_of(folder / "leaf1.addr.json")}
    assert list(ports) == ["lo", "eth0", "swp1", "swp2", "swp3", "swp4", "down1", "down2"]
    assert ports["down2"].mac == "02:00:00:00:04:02"
    assert [str(a) for a in ports["down1"].addresses][:2] == ["10.1.1.1/24", "fd10:1:1::1/64"]
    assert all(port.up and not port.master for port in ports.values())
    heard = {one.port: one for one in advertised_of(folder / "leaf1.lldp.json")}
    assert (heard["swp4"].system, heard["swp4"].far_port) == ("spine2", "swp2")
    assert heard["swp4"].chassis == "02:00:00:00:09:03"
    assert "10.255.0.4" in heard["swp4"].addresses
    macs = {entry.mac for entry in resolved_of(folder / "leaf1.neigh.json") if entry.port == "swp1"}
    assert macs == {"02:00:02:00:02:00"}


def test_without_a_file_nothing_was_asked(tmp_path):
    assert interfaces_of(tmp_path / "a") is None
    assert advertised_of(tmp_path / "a") is None
    assert resolved_of(tmp_path / "a") is None
    (tmp_path / "a.lldp.json").touch()  # lldpctl failed
    assert advertised_of(tmp_path / "a.lldp.json") is None


def test_bonds_and_vrfs_are_remarks(tmp_path):
    (tmp_path / "r.route.json").write_text("[]")
    links = [
        {"ifname": "eth0", "flags": [], "master": "mgmt", "linkinfo": {"info_slave_kind": "vrf"}},
        {"ifname": "swp1", "flags": ["LOWER_UP"], "master": "bond0"},
        {"ifname": "swp2", "flags": [], "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}},
        {"ifname": "bond0", "flags": ["LOWER_UP"]},
    ]
    (tmp_path / "r.addr.json").write_text(json.dumps(links))
    found = read_device(tmp_path, "r")
    assert [(p.name, p.up, p.master, p.vrf) for p in found.interfaces] == [
        ("eth0", False, "", "mgmt"),
        ("swp1", True, "bond0", ""),
        ("swp2", False, "bond0", ""),
        ("bond0", True, "", ""),
    ]
    assert found.remarks == (
        "VRF mgmt is left out with eth0: only the main table was read",
        "bond0 joins swp1, swp2: which of them a packet takes is not known",
    )


def test_what_forwards_and_what_is_offloaded(tmp_path):
    (tmp_path / "r.route.json").write_text(
        '[{"dst": "10.0.0.0/8", "gateway": "10.1.0.1", "dev": "swp1", "flags": ["offload"]}]'
    )
    (tmp_path / "r.sysctl").write_text(
        "net.ipv4.ip_forward = 0\nnet.ipv6.conf.all.forwarding = 1\n"
        "net.ipv4.fib_multipath_hash_policy = 1\nnet.ipv6.fib_multipath_hash_policy = 0\n"
    )
    found = read_device(tmp_path, "r")
    assert found.forwards
    assert found.hash is None
    assert found.ipv4_only
    assert found.remarks == (
        "fib_multipath_hash_policy is 1 for IPv4 and 0 for IPv6; the fabric has the value for IPv4",
        "routes are offloaded: the hardware forwards, and the kernel does not show its hash",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"lldp": 1}',
        b'{"lldp": [{"interface": {"swp1": {}}}]}',  # lldpctl -f json
        b'{"lldp": [{"interface": [{"name": 5}]}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_other_content_is_named(content, tmp_path):
    file = tmp_path / "r.lldp.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.lldp.json: not the output of `lldpctl -f json0`"):
        advertised_of(file)
    file.write_bytes(b'[{"ifname": "a", "flags": [], "addr_info": [{"local": "x"}]}]')
    with pytest.raises(UsageError, match=r"r.lldp.json: 'x/0' does not appear to be"):
        interfaces_of(file)


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ([], 0),
        ([{"priority": 0, "src": "all", "table": "local"}], 0),
        ([{"priority": 1000, "src": "all", "l3mdev": None}], 0),
        ([{"priority": 9, "src": "all", "fwmark": "0x1", "table": "7"}], 1),
        ([{"priority": 9, "src": "10.0.0.0", "srclen": 8, "table": "main"}], 1),
    ],
)
def test_rules_beside_those_of_every_system(rules, count, tmp_path):
    file = tmp_path / "r1.rule.json"
    file.write_text(json.dumps(rules))
    told = policies_of(file, "IPv4")
    assert len(told) == count
    assert all(text.startswith("policy routing: 1 IPv4 rules") for text in told)


@pytest.mark.parametrize("content", ["[", "{}", "[1]"])
def test_rules_that_are_none(content, tmp_path):
    file = tmp_path / "r1.rule.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="r1.rule.json: not the output of `ip -j rule`"):
        policies_of(file, "IPv4")
