"""Equal-cost members that a switch does not use although their link is there.

A member is lost if the group of a route is a proper part of the shortest paths over links
that are up. After the flap of a link, FRR 8.4.4 leaves the kernel's group without it and still
shows it as installed: the capacity is gone without any alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..replay.fabrics.devices.assemble import Assembled
from ..replay.fabrics.devices.cabling import LLDP, Note
from ..replay.fabrics.devices.device import Device
from .folder import Answers

LOST = "lost member"
_SHOWN = 4
"""Destinations named per link."""


def lost_members(assembled: Assembled, answers: Sequence[Answers]) -> list[Note]:
    """One note per link that groups of its switch leave out."""
    fabric = assembled.fabric
    origin = fabric.origin
    assert origin is not None
    by_name = {replies.device.name: replies for replies in answers}
    leaves_out: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for switch in range(fabric.switches):
        if not origin.tables[switch]:
            continue
        for host in range(fabric.hosts):
            edge = int(fabric.attachments.edge[host])
            if edge < 0:
                continue
            used = set(fabric.group(switch, edge)[0].tolist())
            group = int(assembled.shortest.group_of[switch, edge])
            if group < 0 or not used:
                continue
            start = assembled.shortest.group_start
            shortest = assembled.shortest.group_links[start[group] : start[group + 1]].tolist()
            if not used < set(shortest):
                continue
            for link in shortest:
                if link not in used:
                    leaves_out.setdefault(link, []).append(host)
    for link in leaves_out:
        groups[link] = _groups_over(assembled, link)
    notes = []
    for link, hosts in sorted(leaves_out.items()):
        source, target = (int(end[link]) for end in (fabric.links.source, fabric.links.target))
        name, peer = fabric.nodes.names[source], fabric.nodes.names[target]
        near, far = origin.ports[link // 2] if link % 2 == 0 else origin.ports[link // 2][::-1]
        if not (_up(by_name, name, near) and _up(by_name, peer, far)):
            continue
        seen = "its LLDP peer" if LLDP in origin.links[link // 2] else origin.links[link // 2]
        names = ", ".join(fabric.host_name(host) for host in hosts[:_SHOWN])
        more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
        routes = by_name[name].device.routes
        known = {route.network for route in routes}
        held = {r.network for r in routes for hop in r.hops if hop.device == near and hop.usable}
        claimed = sum(
            near in ports and network in known and network not in held
            for network, ports in by_name[name].installed.items()
        )
        frr = f"; FRR calls it installed in {claimed} routes" if claimed else ""
        text = (
            f"{near} to {peer} {far} has a link and {seen}, but {len(hosts)} of {groups[link]} "
            f"equal-cost groups over shortest paths leave it out: to {names}{more}{frr}"
        )
        notes.append(Note(LOST, name, text))
    return notes


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
