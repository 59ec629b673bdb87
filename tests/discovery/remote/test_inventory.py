"""Inventories."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.remote.inventory import read_inventory


def read(tmp_path, text):
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    return read_inventory(file, DIALECTS)


def test_switches_and_hosts(tmp_path):
    text = "switches: {leaf1: {dialect: frr, ssh: admin@leaf1-mgmt}}\nhosts: {h1: {}, h2: }\n"
    assert [(t.name, t.kind, t.dialect.name, t.ssh) for t in read(tmp_path, text)] == [
        ("leaf1", "switch", "frr", "admin@leaf1-mgmt"),
        ("h1", "host", "linux", "h1"),
        ("h2", "host", "linux", "h2"),
    ]


def test_groups_of_an_ansible_inventory(tmp_path):
    (tmp_path / "hosts.ini").write_text("[leaves]\nleaf[1:2]\n[gpu]\nh1\n")
    text = "ansible: {file: hosts.ini, switches: {leaves: frr}, hosts: {gpu: linux}}"
    found = read(tmp_path, text)
    assert [(t.name, t.kind, t.dialect.name) for t in found] == [
        ("leaf1", "switch", "frr"),
        ("leaf2", "switch", "frr"),
        ("h1", "host", "linux"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("switches: {a: {dialect: ios}}", ":1: unknown dialect 'ios'; choose linux, frr"),
        ("switches: {a: }", ":1: a has no dialect; choose linux, frr"),
        ("switches: {a: {dialect: frr}}\nhosts: {a: }", ":2: two devices have the name 'a'"),
        ("hosts: {a: , a: }", ":1: 'a' is given twice"),
        ("switch: {}", ":1: unknown key 'switch'"),
        ("hosts: {a: {user: root}}", ":1: unknown key 'user' of a; it has dialect and ssh"),
        ("hosts: {a/b: }", "'a/b' is not a device name"),
        ("hosts: {'..': }", "'..' is not a device name"),
        ("hosts: {a: {ssh: -oProxyCommand=id}}", "is not a host of ssh_config"),
        ("hosts: {a: {ssh: '127.0.0.1:99999'}}", ":1: ssh of a: the port 99999 is not 1 to 65535"),
        ("hosts: {}", "the inventory names no device"),
        ("ansible: {switches: {a: frr}}", "no file with the Ansible inventory"),
        ("ansible: {file: hosts.ini, x: y}", ":1: unknown key 'x'"),
    ],
)
def test_mistakes(text, message, tmp_path):
    (tmp_path / "hosts.ini").touch()
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_group_that_is_not_there(tmp_path):
    (tmp_path / "hosts.ini").write_text("[leaves]\nleaf1\n")
    with pytest.raises(UsageError, match=r"hosts.ini has no group 'spines'"):
        read(tmp_path, "ansible: {file: hosts.ini, switches: {spines: frr}}")
