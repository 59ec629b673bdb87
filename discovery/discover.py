"""The fabric of a folder of answers, with what is to know about it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..analyzer.errors import UsageError
from ..analyzer.words import printable
from ..replay.fabrics.devices.assemble import Assembled, assemble
from ..replay.fabrics.devices.cabling import Note
from ..replay.fabrics.fabric import Fabric
from ..replay.hashing.settings import HashSettings
from ..version import VERSION
from .asked import Asked
from .failing_routes import failing_routes
from .folder import UNEXPECTED, UNREADABLE, Answers, Unread, read_folder
from .lost_members import lost_members
from .queue_pairs import Entry, joined, read_queue_pairs
from .results import AskedDevice, Command, DiscoveredLink, Discovery, Remark


class Discovered(NamedTuple):
    """A fabric and its report."""

    fabric: Fabric
    report: Discovery


def discover_folder(
    folder: Path, rate_bits_per_second: int, delay_ns: int, source: str = ""
) -> Discovered:
    """The fabric of a folder; source: its name in the report, by default the path.

    UsageError if no device can be read or no host is found.
    """
    answers, unread = read_folder(folder)
    name = source or str(folder)
    commands = {replies.device.name: _name_sources(replies) for replies in answers}
    devices = [replies.device for replies in answers]
    assembled = assemble(name, devices, rate_bits_per_second, delay_ns, commands, strict=False)
    notes = [*assembled.notes, *_same_device(answers), *_faults(assembled, answers)]
    report = _report(assembled.fabric, answers, unread, notes, name)
    pairs: dict[str, list[Entry]] = {}
    remarks = list(report.remarks)
    for replies in answers:
        if replies.asked is not None and replies.asked.kind != "host":
            continue
        try:
            entries = read_queue_pairs(folder, replies.device.name)
        except UsageError as error:
            remarks.append(Remark(kind=UNREADABLE, device=replies.device.name, text=str(error)))
        else:
            if entries is not None:
                pairs[replies.device.name] = entries
    hosts = {assembled.fabric.host_name(host) for host in range(assembled.fabric.hosts)}
    queue_pairs = joined(pairs, complete=hosts <= pairs.keys())
    report = msgspec.structs.replace(report, queue_pairs=queue_pairs, remarks=remarks)
    return Discovered(assembled.fabric, report)


def _faults(assembled: Assembled, answers: list[Answers]) -> list[Note]:
    """What is wrong with the tables; of IPv6 what is not said of IPv4."""

    def of_family(fabric: Fabric) -> list[Note]:
        lost = lost_members(assembled._replace(fabric=fabric), answers)
        return [*lost, *failing_routes(fabric)]

    notes, six = of_family(assembled.fabric), assembled.fabric.of_ipv6()
    known = {(note.kind, note.device, note.text.partition(", but ")[0]) for note in notes}
    return notes + [
        note._replace(text=f"IPv6: {note.text}")
        for note in (() if six is None else of_family(six))
        if (note.kind, note.device, note.text.partition(", but ")[0]) not in known
    ]


def _name_sources(answers: Answers) -> str:
    """The commands that tell the forwarding of a device, and their time."""
    used = [q for q in answers.dialect.questions if q.suffix in answers.dialect.forwarding]
    text = ", ".join(q.command for q in used if q not in answers.missing)
    times = [answers.asked.time_ns(q.suffix) for q in used] if answers.asked is not None else []
    last = max((t for t in times if t is not None), default=None)
    return text if last is None else f"{text}; {_time(last)}"


def _time(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 1000 / 1e6, UTC).isoformat(timespec="milliseconds")


def _same_device(answers: list[Answers]) -> list[Note]:
    """Two names that answer with the same MAC addresses, and two devices with one own name."""
    names: dict[frozenset[str], str] = {}
    systems: dict[str, str] = {}
    notes = []
    for replies in answers:
        macs = frozenset(p.mac for p in replies.device.interfaces or () if p.mac.strip("0:"))
        first = names.setdefault(macs, replies.device.name) if macs else replies.device.name
        if first != replies.device.name:
            text = f"it has the MAC addresses of {first}: one device with two names?"
            notes.append(Note("same device", replies.device.name, text))
        system = replies.device.system
        twin = systems.setdefault(system, replies.device.name) if system else replies.device.name
        if twin != replies.device.name:
            text = (
                f"its system name is {printable(system)}, as that of {twin}: LLDP cannot"
                " distinguish the two"
            )
            notes.append(Note("same name", replies.device.name, text))
    return notes


def _report(
    fabric: Fabric,
    answers: list[Answers],
    unread: list[Unread],
    notes: list[Note],
    source: str,
) -> Discovery:
    origin = fabric.origin
    assert origin is not None
    switches = set(fabric.nodes.names[: fabric.switches])
    asked = [_asked(replies, replies.device.name in switches) for replies in answers]
    links = [
        DiscoveredLink(
            name=fabric.link_name(2 * i), ports=list(origin.ports[i]), evidence=origin.links[i]
        )
        for i in range(len(origin.ports))
    ]
    remarks = [Remark(kind=u.kind, device=u.name, text=u.reason) for u in unread]
    remarks += [
        Remark(kind=UNEXPECTED, device=replies.device.name, text=text)
        for replies in answers
        for text in replies.device.unexpected
    ]
    remarks += [Remark(kind=n.kind, device=n.device, text=n.text) for n in notes]
    without = [n for n, table in zip(fabric.nodes.names, origin.tables, strict=False) if not table]
    return Discovery(
        version=VERSION,
        source=source,
        hosts=fabric.hosts,
        switches=fabric.switches,
        devices=asked,
        switches_without_tables=without,
        links=links,
        remarks=remarks,
    )


def _asked(read: Answers, is_switch: bool) -> AskedDevice:
    return AskedDevice(
        name=read.device.name,
        kind="switch" if is_switch else "host",
        dialect=read.dialect.name,
        hash=(read.device.hash_in_words or hash_in_words(read.device.hash)) if is_switch else None,
        not_read=[_why(q.why, read.asked, q.suffix) for q in read.missing],
        commands=[
            Command(
                command=c.command,
                file=f"{read.device.name}.{c.suffix}",
                time=_time(c.ended_ns),
                output_bytes=c.output_bytes,
                problem=c.problem or None,
            )
            for c in (read.asked.answers if read.asked is not None else ())
        ],
    )


def _why(why: str, asked: Asked | None, suffix: str) -> str:
    problem = asked.problem_of(suffix) if asked is not None else ""
    return f"{why} ({problem})" if problem else why


def hash_in_words(settings: HashSettings | None) -> str:
    """The hash of a switch: policy and seed, and what of it is unknown."""
    if settings is None:
        return "unknown"
    seed = f"seed {settings.seed}" if settings.seed else "seed unknown"
    return f"{settings.model} policy {settings.extra.get('policy', 1)}, {seed}"
