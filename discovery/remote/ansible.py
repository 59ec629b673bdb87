"""Groups and names of an Ansible inventory, in INI or YAML.

Read are groups, their hosts and children, and numeric ranges such as leaf[01:04]. Variables are
skipped: ssh_config has addresses and users. Anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

from ...analyzer.errors import UsageError
from ...analyzer.saved_file import read_saved
from ...replay.fabrics.files.yaml_source import Source, load_yaml

_SECTION = re.compile(r"\[([\w.-]+)(?::(children|vars))?\]")
_RANGE = re.compile(r"([^\[\]]*)\[(\d{1,9}):(\d{1,9})\]([^\[\]]*)")
_PLAIN = re.compile(r"[\w.-]+")
_MOST = 65536
_WANTED = "an Ansible inventory"


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
        raise UsageError(f"{file} is not text; give {_WANTED}") from None
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

    for name, place in load_yaml(file, _WANTED).mapping("groups").items():
        read(name, place, 0)
    return groups
