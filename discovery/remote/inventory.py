"""An inventory: the devices to ask, with their dialects, as YAML.

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
from pathlib import Path
from typing import Literal, NamedTuple

from ...analyzer.errors import UsageError
from ...replay.fabrics.files.yaml_source import Source, load_yaml
from ..dialects.dialect import Dialect
from .ansible import groups_of
from .place import host_and_port

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
