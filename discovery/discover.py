"""A fabric from the answers of its switches and hosts, with its faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..analyzer.errors import UsageError
from ..analyzer.saved_file import MAX_BYTES
from ..analyzer.words import printable
from ..kernels.kernel import Int32s, Ints
from ..replay.fabrics.cables import LLDP, NO_MAC, Note
from ..replay.fabrics.devices import Device
from ..replay.fabrics.fabric import Fabric, edge_switches
from ..replay.fabrics.forwarding import Forwarding
from ..replay.fabrics.topology import Assembled, assemble
from ..replay.flows.checks import DEAD_END, LOOP, depths_to, next_switches
from ..replay.hashing.settings import HashSettings
from ..version import VERSION
from .folder import UNEXPECTED, UNREADABLE, Answers, Unread, read_folder
from .results import Asked, AskedDevice, Command, DiscoveredLink, Discovery, Remark
from .traffic import Entry, joined, read_queue_pairs

# Routes that lead nowhere: switches without a route to a host, and loops of several switches.

NO_ROUTE, CIRCLE = "no route", "loop"
_SHOWN = 4
"""Hosts named per line."""


def failing_routes(fabric: Fabric) -> list[Note]:
    """One note per switch without a route to hosts, and one per loop."""
    assert fabric.origin is not None
    edges = edge_switches(fabric.attachments)
    if not len(edges):
        return []
    starts = np.unique(edges[edges >= 0])
    alike, number = _alike(fabric, edges)
    dead: dict[int, list[str]] = defaultdict(list)
    circles: dict[tuple[int, ...], list[str]] = defaultdict(list)
    of_host = np.where(fabric.attachments.edge >= 0, number[fabric.attachments.edge], -1)
    for i, edge in enumerate(alike.tolist()):
        depth = depths_to(fabric, edge, starts)
        hosts = [fabric.host_name(int(h)) for h in np.flatnonzero(of_host == i)]
        for switch, steps in depth.items():
            if (
                steps == DEAD_END
                and fabric.origin.tables[switch]
                and not next_switches(fabric, switch, edge)
            ):
                dead[switch] += hosts
        for circle in {c for s, d in depth.items() if d == LOOP for c in _circle(fabric, s, edge)}:
            circles[circle] += hosts
    names = fabric.nodes.names
    notes = []
    for circle, hosts in circles.items():
        way = " > ".join(names[switch] for switch in (*circle, circle[0]))
        text = f"packets to {_some(hosts)} loop: {way}"
        notes.append(Note(CIRCLE, names[circle[0]], text))
    for switch, hosts in sorted(dead.items()):
        notes.append(Note(NO_ROUTE, names[switch], f"it has no route to {_some(hosts)}"))
    return notes


def _alike(fabric: Fabric, edges: Int32s) -> tuple[Ints, Ints]:
    """(one edge of each set with equal groups everywhere, the number of the set of each edge)."""
    forwarding = fabric.forwarding
    start = forwarding.group_start
    known: dict[bytes, int] = {}
    equal = np.full(len(start), -1, np.int32)  # the last item serves group -1
    for group in range(len(start) - 1):
        links = forwarding.group_links[start[group] : start[group + 1]].tobytes()
        equal[group] = known.setdefault(links, len(known))
    columns = np.concatenate([equal[forwarding.of_family(4)], edges.T])
    _, first, number = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return first, number.reshape(-1)


def _circle(fabric: Fabric, start: int, edge: int) -> Iterator[tuple[int, ...]]:
    """The loop that a search from a switch closes first, from its lowest number.

    All its switches have tables: the paths of others are assumed, and prove no loop.
    """
    assert fabric.origin is not None
    tables = fabric.origin.tables
    begins, seen = [start], set[int]()
    while begins:
        first = begins.pop()
        if first in seen:
            continue
        seen.add(first)
        if not tables[first]:
            begins += next_switches(fabric, first, edge)
            continue
        way, waiting = [first], [list(next_switches(fabric, first, edge))]
        while way:
            if not waiting[-1]:
                way.pop()
                waiting.pop()
                continue
            node = waiting[-1].pop()
            if node in way:
                circle = way[way.index(node) :]
                least = circle.index(min(circle))
                yield (*circle[least:], *circle[:least])
                return
            if not tables[node]:
                begins.append(node)
            elif node not in seen:
                seen.add(node)
                way.append(node)
                waiting.append(list(next_switches(fabric, node, edge)))


def _some(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more


# Equal-cost members that a switch does not use although their link is there.
#
# A member is lost if the group of a route is a proper part of the shortest paths over links
# that are up. After the flap of a link, FRR 8.4.4 leaves the kernel's group without it and still
# shows it as installed: the capacity is gone without any alarm.

LOST = "lost member"
_LOST_MEMBERS_SHOWN = 4
"""Destinations named per link."""


def lost_members(assembled: Assembled, answers: Sequence[Answers]) -> list[Note]:
    """One note per link that groups of its switch leave out."""
    fabric = assembled.fabric
    origin = fabric.origin
    assert origin is not None
    by_name = {replies.device.name: replies for replies in answers}
    leaves_out: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    hosts = np.flatnonzero(fabric.attachments.edge >= 0)
    edge = fabric.attachments.edge[hosts]
    for switch in range(fabric.switches):
        if not origin.tables[switch]:
            continue
        of_hosts = np.stack(
            [fabric.forwarding.group_of[switch, edge], assembled.shortest.group_of[switch, edge]]
        )
        pairs, number = np.unique(of_hosts, axis=1, return_inverse=True)
        for i, (group, best) in enumerate(pairs.T.tolist()):
            if group < 0 or best < 0:
                continue
            used = set(_links_of(fabric.forwarding, group))
            shortest = _links_of(assembled.shortest, best)
            for link in shortest if used and used < set(shortest) else ():
                if link not in used:
                    leaves_out.setdefault(link, []).extend(hosts[number.reshape(-1) == i].tolist())
    for link in leaves_out:
        groups[link] = _groups_over(assembled, link)
    notes = []
    for link, left in sorted(leaves_out.items()):
        left.sort()
        source, target = (int(end[link]) for end in (fabric.links.source, fabric.links.target))
        name, peer = fabric.nodes.names[source], fabric.nodes.names[target]
        near, far = origin.ports[link // 2] if link % 2 == 0 else origin.ports[link // 2][::-1]
        if not (_up(by_name, name, near) and _up(by_name, peer, far)):
            continue
        seen = "its LLDP peer" if LLDP in origin.links[link // 2] else origin.links[link // 2]
        names = ", ".join(fabric.host_name(host) for host in left[:_LOST_MEMBERS_SHOWN])
        more = (
            f" and {len(left) - _LOST_MEMBERS_SHOWN} more"
            if len(left) > _LOST_MEMBERS_SHOWN
            else ""
        )
        installed = {net for net, ports in by_name[name].installed.items() if near in ports}
        routes = by_name[name].device.routes
        holds = [any(h.device == near and h.usable for h in r.hops) for r in routes.firsts]
        held = {route.network for route in routes.of_groups(np.array(holds, np.bool_))}
        claimed = len(installed & set(routes.networks) - held) if installed else 0
        frr = f"; FRR calls it installed in {claimed} routes" if claimed else ""
        text = (
            f"{near} to {peer} {far} has a link and {seen}, but {len(left)} of {groups[link]} "
            f"equal-cost groups over shortest paths leave it out: to {names}{more}{frr}"
        )
        notes.append(Note(LOST, name, text))
    return notes


def _links_of(forwarding: Forwarding, group: int) -> list[int]:
    start = forwarding.group_start
    links: list[int] = forwarding.group_links[start[group] : start[group + 1]].tolist()
    return links


def _groups_over(assembled: Assembled, link: int) -> int:
    """The number of hosts to which a link is on a shortest path from its switch."""
    shortest = assembled.shortest
    start = shortest.group_start
    with_link = np.zeros(len(start), np.bool_)  # the last item serves the -1 of `group_of`
    at = np.flatnonzero(shortest.group_links == link)
    with_link[np.searchsorted(start, at, "right") - 1] = True
    edges = shortest.group_of[int(assembled.fabric.links.source[link])]
    return int(np.count_nonzero(with_link[edges] & (edges >= 0)))


def _up(answers: Mapping[str, Answers], node: str, port: str) -> bool:
    """Whether a port has a link, as far as its device was asked."""
    device: Device | None = answers[node].device if node in answers else None
    ports = () if device is None else device.interfaces or ()
    return all(interface.up for interface in ports if interface.name == port)


class Discovered(NamedTuple):
    """A fabric and its report."""

    fabric: Fabric
    report: Discovery
    ethers: dict[str, str]
    """The device, or device:port, of each Ethernet address that one device alone has."""


def name_addresses(devices: Sequence[Device]) -> dict[str, str]:
    """The names of the Ethernet addresses of ports: `leaf1:swp3`, or `leaf1` where several ports
    have one address. Gateway addresses that devices share name nobody."""
    ports: dict[str, dict[str, list[str]]] = {}
    for device in devices:
        for port in device.interfaces or ():
            if port.mac not in NO_MAC:
                ports.setdefault(port.mac, {}).setdefault(device.name, []).append(port.name)
    return {
        address: _one_word(name if len(names) > 1 else f"{name}:{names[0]}")
        for address, owners in sorted(ports.items())
        if len(owners) == 1
        for name, names in owners.items()
    }


def _one_word(name: str) -> str:
    """A name as a line of ethers(5) can have it."""
    return "_".join(printable(name).split()) or "?"


def discover_folder(
    folder: Path,
    rate_bits_per_second: int,
    delay_ns: int,
    source: str = "",
    most_bytes: int = MAX_BYTES,
) -> Discovered:
    """The fabric of a folder; source: its name in the report, by default the path. An answer of
    more than `most_bytes` is not read.

    UsageError if no device can be read or no host is found.
    """
    answers, unread = read_folder(folder, most_bytes)
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
    return Discovered(assembled.fabric, report, name_addresses(devices))


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
