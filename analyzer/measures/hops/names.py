"""Names of taps and of the devices between them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence

_FILE = re.compile(r"(.*?)(\.(pcapng|pcap|cap|gz|xz|zst|lz4|bz2|snoop|dmp))+(:.*)?$", re.IGNORECASE)
"""A file name and, of a pcapng with several interfaces, the interface."""
_FOLDERS = re.compile(r" \(.*\)$")
_PARTS = re.compile(r"[^A-Za-z0-9.]+")
_WORDS = {"to", "in", "out", "rx", "tx", "link", "tap", "port"}
_PORT = re.compile(
    r"(eth|ethernet|et|xe|ge|te|gi|fo|hu|swp|port|bond|mlx|rxe|irdma|ib)?\d+|et|xe|ge"
    r"|(en|roce|ib)(o|s|p|x)\d\w*",
    re.IGNORECASE,
)
"""A port of a device or host, or its number."""


def short_names(names: Sequence[str]) -> list[str]:
    """The names without folder, file endings, and what all have in common at both ends.

    Of a file with one interface the interface is dropped, of the interfaces of one file the file.
    A common part ends at a separator: leaf1-spine1 and leaf1-spine2 stay as they are. Where all
    names have two parts in common anywhere, and two devices of their own, only what differs stays:
    leaf1-spine1 of pod3-row7-leaf1-eth1-to-pod3-row7-spine1-eth1. Where two names would become
    equal, all keep the folders in which they differ: leaf1-spine1 (monday).
    """
    files, interfaces = zip(*map(_file_and_interface, names), strict=True) if names else ((), ())
    short = list(files)
    if len(files) > len(set(files)) == 1 and all(interfaces):
        short = list(interfaces)
    elif len(set(files)) < len(set(names)):
        times = Counter(files)
        short = [
            f"{file}:{interface}" if interface and times[file] > 1 else file
            for file, interface in zip(files, interfaces, strict=True)
        ]
    if len(set(short)) < len(set(names)):
        short = _with_folders(names, short)
    if len(set(short)) < len(set(names)):
        return list(names)
    if len(short) > 1:
        trimmed = _without_common(_without_common(short, front=True), front=False)
        trimmed = _without_shared(trimmed)
        if all(trimmed) and len(set(trimmed)) == len(set(short)):
            short = trimmed
    return short


def _file_and_interface(name: str) -> tuple[str, str]:
    """Without folder and file ending; an empty interface for none."""
    found = _FILE.match(name)
    if found is None:
        return os.path.basename(name) or name, ""
    return os.path.basename(found[1]) or name, (found[4] or "")[1:]


def _with_folders(names: Sequence[str], short: Sequence[str]) -> list[str]:
    """The short names before their folders, without those that all have in common."""
    folders = [os.path.dirname(name).split("/") for name in names]
    named = [own for own in folders if own != [""]]  # the first of equal files has no folder
    common = len(os.path.commonprefix(named))  # of lists, whole folders
    if all(own == named[0] for own in named):
        common -= 1
    tails = ["/".join(own[common:]) for own in folders]
    return [f"{name} ({tail})" if tail else name for name, tail in zip(short, tails, strict=True)]


def _without_common(names: list[str], front: bool) -> list[str]:
    """Without the parts, up to a dot, underscore or at sign, that begin (or end) every name."""
    cut = [re.split(r"([._@]+)", name) for name in names]
    while all(len(parts) > 2 for parts in cut):
        ends = {tuple(parts[:2] if front else parts[-2:]) for parts in cut}
        if len(ends) > 1:
            break
        cut = [parts[2:] if front else parts[:-2] for parts in cut]
    return ["".join(parts) for parts in cut]


def _without_shared(names: list[str]) -> list[str]:
    """Without the parts of every name, where these leave no pair of names a device in between."""
    devices = [set(parts_of(name)) for name in names]
    shared = set.intersection(*devices)
    one_way = any(name.endswith((" in", " out")) for name in names)
    if len(shared) < 2 or one_way or any(len(each - shared) < 2 for each in devices):
        return names
    parts = [_PARTS.split(name) for name in names]
    common = set.intersection(*map(set, parts))
    return ["-".join(part for part in each if part and part not in common) for each in parts]


def parts_of(name: str) -> list[str]:
    """The devices in a short name: `leaf1-spine3` has leaf1 and spine3, and so has
    `leaf1-eth2-spine3-eth1`; its folders, in brackets, are none."""
    parts = [
        part for part in _PARTS.split(_FOLDERS.sub("", name)) if part and part.lower() not in _WORDS
    ]
    devices = [part for part in parts if not _PORT.fullmatch(part)]
    return devices if len(devices) > 1 else parts


def device_between(near: str, far: str) -> str | None:
    """The device that both links have at one end; None when the names do not show it."""
    here, there = parts_of(near), set(parts_of(far))
    shared = [part for part in here if part in there]
    if len(shared) != 1 or len(there) < 2:
        return None
    # Ports of two devices may have the same name; where all are numbers these are devices.
    port = _PORT.fullmatch(shared[0]) and not all(map(_PORT.fullmatch, (*here, *there)))
    return None if port else shared[0]


def direction(near: str, far: str) -> str | None:
    """`leaf1 to leaf2` for the hop from leaf1-spine3 to leaf2-spine3."""
    device = device_between(near, far)
    if device is None:
        return None
    here = [part for part in parts_of(near) if part != device]
    there = [part for part in parts_of(far) if part != device]
    return f"{here[0]} to {there[0]}" if len(here) == 1 and len(there) == 1 else None
