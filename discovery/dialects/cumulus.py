"""Cumulus Linux with NVUE: the kernel's tables, which switchd copies into the chip.

The chip hashes in its own way: the kernel's hash settings are never used. Shapes: NVIDIA's user
guide of Cumulus Linux 5 (NVUE, equal cost multipath, adaptive routing).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...replay.fabrics.devices.device import Device
from ...replay.fabrics.files.yaml_source import Source
from .dialect import Calculator, Question
from .linux import LINUX, read_known
from .reading import Entry, Lines, Reader, match_whole, number, one_of

_FORWARDING, _TRAFFIC = "cumulus-forwarding.json", "cumulus-traffic"
_ADAPTIVE = "cumulus-adaptive.json"
_OWN = (
    Question(_FORWARDING, "nv show system forwarding -o json", "hash fields"),
    Question(_TRAFFIC, "cat /etc/cumulus/datapath/traffic.conf", "hash seed"),
    Question(_ADAPTIVE, "nv show router adaptive-routing -o json", "adaptive routing"),
)
_ON = {"on": True, "enabled": True, "off": False, "disabled": False}
_SEED = re.compile(r"\s*(?:hash_config\.)?ecmp_hash_seed\s*=\s*(.*)")


def _read(folder: Path, name: str) -> Device:
    device = read_known(folder, name)
    reader = Reader(folder, name, _OWN)
    words = [reader.text(_TRAFFIC, _seed), reader.json(_FORWARDING, _fields)]
    remarks = reader.json(_ADAPTIVE, _adaptive) or []
    return replace(
        device,
        hash=None,
        hash_in_words=", ".join(word for word in words if word),
        remarks=(*device.remarks, *remarks),
        unexpected=(*device.unexpected, *reader.problems),
    )


def _seed(lines: Lines) -> str:
    """The seed; without a line the switch has drawn one."""
    for line in lines:
        match = _SEED.fullmatch(line.text)
        if match:
            return f"seed {number(match[1], 'a seed', (1 << 32) - 1, line)}"
    return "seed random"


def _fields(top: Source) -> str:
    entry = Entry(top)
    chosen = [
        name
        for name, value in entry.inner("ecmp-hash").values.items()
        if _ON[one_of(value.text("on or off"), _ON, "setting", value)]
    ]
    return f"fields {' '.join(chosen)}"


def _adaptive(top: Source) -> list[str]:
    entry = Entry(top)
    state = one_of(entry.text("enable"), _ON, "enable", entry.place)
    if not _ON[state]:
        return []
    return ["adaptive routing is on: its groups have no fixed next hop per flow"]


_ANSWER = re.compile(rb"(?:ecmpcalc: will query hardware\s+)?([A-Za-z][A-Za-z0-9._-]{0,14})\s*")
_ASK = "sudo -n cl-ecmpcalc -i {port} -s {src} -d {dst} -p udp --sport {sport} --dport {dport}"

CUMULUS = LINUX._replace(
    name="cumulus",
    questions=(*LINUX.questions, *_OWN),
    read=_read,
    mark=_FORWARDING,
    forwarding=("route.json",),
    met="",
    calculator=Calculator(_ASK, partial(match_whole, _ANSWER)),
)
