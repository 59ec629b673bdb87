"""The devices to ask: rocescope's and Ansible's inventories.

```yaml
switches:
  leaf1: {dialect: frr}
  spine1: {dialect: linux, ssh: spine1-mgmt}
hosts:
  h1: {}
ansible:
  file: hosts.ini
  switches: {leaves: frr}
  hosts: {gpu: linux}
```

`ssh` is the host in ssh_config, by default the name of the device. An Ansible inventory gives
names by group; its variables are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from ..analyzer.errors import UsageError
from ..analyzer.saved_file import read_saved
from ..replay.fabrics.sources import Source, load_yaml
from .dialects.dialect import Dialect
from .ssh import host_and_port

# Groups and names of an Ansible inventory, in INI or YAML. ansible-core loads for 0.65 s, 32 MB.
#
# Read are groups, their hosts and children, and numeric ranges such as leaf[01:04]. Variables are
# skipped: ssh_config has addresses and users. Anything else is refused.

_SECTION = re.compile(r"\[([\w.-]+)(?::(children|vars))?\]")
_RANGE = re.compile(r"([^\[\]]*)\[(\d{1,9}):(\d{1,9})\]([^\[\]]*)")
_PLAIN = re.compile(r"[\w.-]+")
_MOST = 65536
_ANSIBLE_WANTED = "an Ansible inventory"


class _Groups:
    def __init__(self) -> None:
        self.hosts: dict[str, list[str]] = {}
        self.children: dict[str, list[str]] = {}

    def add(self, group: str) -> None:
        self.hosts.setdefault(group, [])
        self.children.setdefault(group, [])


def groups_of(file: Path) -> Mapping[str, list[str]]:
    """The hosts of every group, with those of its children. UsageError names the line."""
    groups = _yaml(file) if file.suffix.lower() in (".yaml", ".yml", ".json") else _ini(file)
    for children in groups.children.values():
        for child in children:
            if child not in groups.hosts:
                raise UsageError(f"{file}: there is no group {child!r}")
    try:
        children_first = list(TopologicalSorter(groups.children).static_order())
    except CycleError as error:
        raise UsageError(f"{file}: the group {error.args[1][0]!r} contains itself") from None
    members: dict[str, list[str]] = {}
    for group in children_first:
        below = (members[child] for child in groups.children[group])
        members[group] = list(dict.fromkeys(chain(groups.hosts[group], *below)))
    return members


def _ini(file: Path) -> _Groups:
    try:
        lines = read_saved(file).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text; give {_ANSIBLE_WANTED}") from None
    groups = _Groups()
    group, kind = "ungrouped", ""
    for number, line in enumerate(lines, 1):
        text = line.split(" #")[0].strip()
        if not text or text[0] in "#;":
            continue
        where = f"{file}:{number}"
        if text.startswith("["):
            match = _SECTION.fullmatch(text)
            if match is None:
                raise UsageError(f"{where}: {text!r} is not a group")
            group, kind = match[1], match[2] or ""
            groups.add(group)
        elif kind == "children":
            groups.children[group].append(text)
        elif kind != "vars":
            groups.add(group)
            groups.hosts[group] += _names(text.split()[0], where)
    return groups


def _names(text: str, where: str) -> list[str]:
    """The names of a host pattern."""
    match = _RANGE.fullmatch(text)
    if match is not None:
        first, last = int(match[2]), int(match[3])
        if not first <= last < first + _MOST:
            raise UsageError(f"{where}: {text!r} is not a range of names")
        width = len(match[2]) if match[2].startswith("0") else 0
        names = [f"{match[1]}{i:0{width}}{match[4]}" for i in range(first, last + 1)]
    else:
        names = [text]
    if not all(_PLAIN.fullmatch(name) for name in names):
        raise UsageError(f"{where}: {text!r} is not a name, nor a range such as leaf[01:04]")
    return names


def _yaml(file: Path) -> _Groups:
    groups = _Groups()
    done: set[tuple[str, int]] = set()
    """Group and its node: aliases name one node many times."""

    def read(name: str, place: Source, depth: int) -> None:
        if depth > 20:
            raise place.wrong("groups are nested too deeply")
        if (name, id(place.node)) in done:
            return
        done.add((name, id(place.node)))
        groups.add(name)
        entry = place.mapping("hosts and children of a group")
        for key, value in entry.items():
            if key == "hosts":
                for pattern, host in value.mapping("hosts").items():
                    groups.hosts[name] += _names(pattern, host.where)
            elif key == "children":
                for child, inner in value.mapping("groups").items():
                    groups.children[name].append(child)
                    read(child, inner, depth + 1)
            elif key != "vars":
                raise value.wrong(f"unknown key {key!r} of the group {name!r}")

    for name, place in load_yaml(file, _ANSIBLE_WANTED).mapping("groups").items():
        read(name, place, 0)
    return groups


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names of devices are names of files."""
_TARGET = re.compile(r"[A-Za-z0-9_\[][\w.@:%\[\]-]*")
"""Not an option: it begins with no dash."""
_WANTED = "a folder with answers, or an inventory in YAML"
Kind = Literal["switch", "host"]


class Target(NamedTuple):
    """One device to ask."""

    name: str
    kind: Kind
    dialect: Dialect
    ssh: str
    """Host in ssh_config."""


def read_inventory(file: Path, dialects: Mapping[str, Dialect]) -> list[Target]:
    """The devices of an inventory, switches first. UsageError names the place."""
    top = load_yaml(file, _WANTED).mapping("switches and hosts")
    for key, place in top.items():
        if key not in ("switches", "hosts", "ansible"):
            raise place.wrong(f"unknown key {key!r}; an inventory has switches, hosts and ansible")
    targets: dict[str, Target] = {}
    for target, place in [
        *_listed(top, "switches", "switch", dialects),
        *_listed(top, "hosts", "host", dialects),
        *_from_ansible(top, file, dialects),
    ]:
        if target.name in targets:
            raise place.wrong(f"two devices have the name {target.name!r}")
        targets[target.name] = target
    if not targets:
        raise UsageError(f"{file}: the inventory names no device")
    return list(targets.values())


def _listed(
    top: Mapping[str, Source], key: str, kind: Kind, dialects: Mapping[str, Dialect]
) -> Iterator[tuple[Target, Source]]:
    for name, place in top[key].mapping("names of devices").items() if key in top else ():
        entry = place.mapping("dialect and ssh")
        for word, value in entry.items():
            if word not in ("dialect", "ssh"):
                raise value.wrong(f"unknown key {word!r} of {name}; it has dialect and ssh")
        if kind == "switch" and "dialect" not in entry:
            raise place.wrong(f"{name} has no dialect; choose {', '.join(dialects)}")
        dialect = _dialect(entry["dialect"], dialects) if "dialect" in entry else dialects["linux"]
        ssh = entry["ssh"].text("a host of ssh_config") if "ssh" in entry else name
        yield _target(name, kind, dialect, ssh, place), place


def _target(name: str, kind: Kind, dialect: Dialect, ssh: str, place: Source) -> Target:
    if not _NAME.fullmatch(name):
        raise place.wrong(f"{name!r} is not a device name: letters, digits, dot, dash and _")
    if not _TARGET.fullmatch(ssh):
        raise place.wrong(f"{ssh!r} is not a host of ssh_config")
    try:
        host_and_port(ssh.rpartition("@")[2])
    except ValueError as error:
        raise place.wrong(f"ssh of {name}: {error}") from None
    return Target(name, kind, dialect, ssh)


def _dialect(place: Source, dialects: Mapping[str, Dialect]) -> Dialect:
    name = place.text("a dialect")
    if name not in dialects:
        raise place.wrong(f"unknown dialect {name!r}; choose {', '.join(dialects)}")
    return dialects[name]


def _from_ansible(
    top: Mapping[str, Source], file: Path, dialects: Mapping[str, Dialect]
) -> Iterator[tuple[Target, Source]]:
    if "ansible" not in top:
        return
    entry = top["ansible"].mapping("file, switches and hosts")
    for word, value in entry.items():
        if word not in ("file", "switches", "hosts"):
            raise value.wrong(f"unknown key {word!r}; ansible has file, switches and hosts")
    if "file" not in entry:
        raise top["ansible"].wrong("no file with the Ansible inventory")
    path = file.parent / entry["file"].text("the file of an Ansible inventory")
    groups = groups_of(path)
    kinds: tuple[tuple[str, Kind], ...] = (("switches", "switch"), ("hosts", "host"))
    for key, kind in kinds:
        for group, place in entry[key].mapping("groups").items() if key in entry else ():
            if group not in groups:
                raise place.wrong(f"{path} has no group {group!r}")
            dialect = _dialect(place, dialects)
            for name in groups[group]:
                yield _target(name, kind, dialect, name, place), place
