"""Saved counters of a host: `ethtool -S`, `rdma statistic`, and sysfs hw_counters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ....errors import UnreadableInput

_MAX_BYTES = 16 << 20
_COLON = re.compile(r"^\s*(?:\S*/)?([A-Za-z][\w. \-\[\]]*?)\s*[:=]\s*(\d+)\s*$")
"""`name: 12` of ethtool, `/sys/class/infiniband/.../name:12` of grep."""
_PAIRS = re.compile(r"([A-Za-z_]\w*(?: [A-Za-z_]\w*)*) (\d+)(?=\s|$)")
"""`link mlx5_0/1 name 12 name 34` of rdma statistic; irdma has names of several words."""


def read_counters(path: Path) -> dict[str, int]:
    """Counters by name, summed over ports.

    Formats: the output of `ethtool -S`, of `rdma statistic show link`, plain or as JSON (-j), lines
    `name value`, the output of `grep . .../hw_counters/*`, and a copy of such a folder.
    UnreadableInput when it holds no counter.
    """
    if path.is_dir():
        found: dict[str, int] = {}
        for file in sorted(p for p in path.iterdir() if p.is_file()):
            text = _text(file).strip()
            if text.isdecimal():
                found[file.name] = int(text)
    else:
        found = _parse(_text(path))
    if not found:
        raise UnreadableInput(
            f"{path}: no counter in it; save ethtool -S, rdma statistic or grep . hw_counters/*"
        )
    return found


def growth(before: Path, after: Path) -> dict[str, int]:
    """Growth of each counter that both files have; UnreadableInput without a common counter."""
    first, second = read_counters(before), read_counters(after)
    both = {name: second[name] - first[name] for name in second if name in first}
    if not both:
        raise UnreadableInput(f"{before} and {after} have no counter in common")
    if all(value <= 0 for value in both.values()) and any(both.values()):
        raise UnreadableInput(f"{before} was saved after {after}: swap the two files")
    return both


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError as error:
        raise UnreadableInput(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _parse(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    if text.lstrip()[:1] in ("[", "{"):
        try:
            _walk_json(json.loads(text), found)
        except ValueError:
            return {}
        return found
    for line in text.splitlines():
        one = _COLON.match(line)
        if one is not None:
            _add(found, one[1], int(one[2]))
            continue
        body = line.partition("/")[2].partition(" ")[2] if line.startswith("link ") else line
        for name, value in _PAIRS.findall(body):
            _add(found, name, int(value))
    return found


def _walk_json(node: Any, found: dict[str, int]) -> None:
    """Every number with a name; ports and indices are not counters."""
    if isinstance(node, list):
        for item in node:
            _walk_json(item, found)
    elif isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, dict | list):
                _walk_json(value, found)
            elif isinstance(value, int) and name not in ("port", "ifindex", "qpn"):
                _add(found, name, value)


def _add(found: dict[str, int], name: str, value: int) -> None:
    found[name] = found.get(name, 0) + value
