"""Names and groups of Ansible inventories."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.remote.ansible import groups_of

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
