"""Routes that lead nowhere: switches without a route to a host, and loops of several switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ..kernels.kernel import Int32s, Ints
from ..replay.fabrics.devices.cabling import Note
from ..replay.fabrics.fabric import Fabric, edge_switches
from ..replay.flows.checks.fabric_check import DEAD_END, LOOP, depths_to, next_switches

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
        way, waiting = [first], [next_switches(fabric, first, edge)]
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
                waiting.append(next_switches(fabric, node, edge))


def _some(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more
