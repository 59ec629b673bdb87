"""The fabric of a folder of answers, with what is to know about it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..replay.fabrics.devices.assemble import assemble
from ..replay.fabrics.devices.cabling import Note
from ..replay.fabrics.fabric import Fabric
from ..replay.hashing import HashSettings
from ..version import VERSION
from .dialects.linux import LINUX
from .folder import Answers, Unreadable, read_folder
from .lost_members import lost_members
from .results import AskedDevice, DiscoveredLink, Discovery, Remark

_READ = "route.json", "sysctl"


class Discovered(NamedTuple):
    """A fabric and its report."""

    fabric: Fabric
    report: Discovery


def discover_folder(folder: Path, rate_bits_per_second: int, delay_ns: int) -> Discovered:
    """The fabric of a folder. UsageError if no device can be read or no host is found."""
    answers, unreadable = read_folder(folder)
    told = ", ".join(q.command for q in LINUX.questions if q.suffix in _READ)
    devices = [one.device for one in answers]
    assembled = assemble(str(folder), devices, rate_bits_per_second, delay_ns, told, strict=False)
    notes = [*assembled.notes, *lost_members(assembled, answers)]
    return Discovered(
        assembled.fabric, _report(assembled.fabric, answers, unreadable, notes, folder)
    )


def _report(
    fabric: Fabric,
    answers: list[Answers],
    unreadable: list[Unreadable],
    notes: list[Note],
    folder: Path,
) -> Discovery:
    origin = fabric.origin
    assert origin is not None
    switches = set(fabric.nodes.names[: fabric.switches])
    asked = [_asked(one, one.device.name in switches) for one in answers]
    links = [
        DiscoveredLink(
            name=fabric.link_name(2 * i), ports=list(origin.ports[i]), evidence=origin.links[i]
        )
        for i in range(len(origin.ports))
    ]
    remarks = [Remark(kind="unreadable", device=u.name, text=u.reason) for u in unreadable]
    remarks += [Remark(kind=n.kind, device=n.device, text=n.text) for n in notes]
    unread = [n for n, told in zip(fabric.nodes.names, origin.tables, strict=False) if not told]
    return Discovery(
        version=VERSION,
        source=str(folder),
        hosts=fabric.hosts,
        switches=fabric.switches,
        devices=asked,
        switches_without_tables=unread,
        links=links,
        remarks=remarks,
    )


def _asked(one: Answers, is_switch: bool) -> AskedDevice:
    return AskedDevice(
        name=one.device.name,
        kind="switch" if is_switch else "host",
        dialect=one.dialect.name,
        hash=hash_in_words(one.device.hash) if is_switch else None,
        not_read=[q.why for q in one.missing],
    )


def hash_in_words(settings: HashSettings | None) -> str:
    """The hash of a switch: policy and seed, and what of it is unknown."""
    if settings is None:
        return "unknown"
    seed = f"seed {settings.seed}" if settings.seed else "seed unknown"
    return f"{settings.model} policy {settings.extra.get('policy', 1)}, {seed}"
