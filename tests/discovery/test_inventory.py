"""Inventories."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.inventory import groups_of, read_inventory

# Inventories.


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


# Names and groups of Ansible inventories.

INI = """\
; a fabric
mail.example.com

[leaves]
leaf[01:03] ansible_host=10.0.0.1
leaf9 # the last

[spines]
spine1
[switches:children]
leaves
spines
[switches:vars]
ansible_user=admin
"""
YAML = """\
all:
  vars: {x: 1}
  children:
    switches:
      children:
        leaves: {hosts: {"leaf[01:03]": , leaf9: {ansible_host: 10.0.0.9}}}
        spines: {hosts: {spine1: }}
  hosts: {mail.example.com: }
"""


@pytest.mark.parametrize(("suffix", "text"), [("ini", INI), ("yml", YAML)])
def test_groups_with_children_and_ranges(suffix, text, tmp_path):
    file = tmp_path / f"hosts.{suffix}"
    file.write_text(text)
    groups = groups_of(file)
    assert groups["leaves"] == ["leaf01", "leaf02", "leaf03", "leaf9"]
    assert groups["switches"] == [*groups["leaves"], "spine1"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.ini", "[a\nx", r"a.ini:1: '\[a' is not a group"),
        ("a.ini", "x[a:c]", r"a.ini:1: 'x\[a:c\]' is not a name, nor a range"),
        ("a.ini", "x[1:99999999]", r"is not a range of names"),
        ("a.ini", f"x[{'0' * 5000}:1]", r"is not a name, nor a range"),
        ("a.ini", "x[9:1]", r"is not a range of names"),
        ("a.ini", "[a:children]\nb", "there is no group 'b'"),
        ("a.ini", "[a:children]\nb\n[b:children]\na", "the group 'a' contains itself"),
        ("a.yml", "all: {host: {a: }}", "a.yml:1: unknown key 'host' of the group 'all'"),
        ("a.yml", "all: {hosts: {'$(id)': }}", "is not a name, nor a range"),
    ],
)
def test_anything_else_is_refused(name, text, message, tmp_path):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        groups_of(file)


def test_unreadable_files(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        groups_of(tmp_path / "none.ini")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not text"):
        groups_of(tmp_path / "binary")


def test_groups_of_any_depth(tmp_path):
    chain = tmp_path / "chain.ini"
    links = [f"[g{i}:children]\ng{i + 1}\n" for i in range(3000)]
    chain.write_text("".join(links) + "[g3000]\nleaf1\n")
    assert groups_of(chain)["g0"] == ["leaf1"]


def test_groups_that_name_a_group_twice(tmp_path):
    """Sixty levels: without care 2 ** 60 visits."""
    file = tmp_path / "twice.ini"
    links = [f"[g{i}:children]\ng{i + 1}\ng{i + 1}\n" for i in range(60)]
    file.write_text("".join(links) + "[g60]\nleaf1\n")
    assert groups_of(file)["g0"] == ["leaf1"]
