"""Detects taps on parallel links and the directions of their packets.

A capture does not hold the topology of its taps. Packets of one host pair with the same hop limit
are at the same distance from the source; taps with such packets share the traffic between the two
hosts, unless they see the same packets (taps in series without a router between them).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....kernels.kernel import Bools, Ints, UInt32s
from ...results.paths import Imbalance
from ...statistics.shares import NOTHING, carried, together, width
from ..path_table import OTHER
from ..spraying import PathUsage, UsageRecords, imbalance_of

SPRAYED_WIDTH = 1.5
"""Flows with at least this spraying width count as sprayed."""
LISTED_FLOWS = 16
"""Largest number of sprayed flows, by bytes, with entropy values reported as a set of paths."""

_SERIES_SHARE = 0.1
"""Taps that share more than this fraction of the smaller tap's packets are in series."""
_LISTED_HOSTS = 4


class Crossings(NamedTuple):
    """Packets of each group at each tap, copies included; only groups and taps with packets.

    A group is the packets of one source, destination and hop limit, which may be spread over
    parallel links. Records are ordered by group, and there is one for each group and tap.
    """

    group: Ints
    tap: Ints
    packets: Ints


def parallel_tap_sets(seen: Crossings, copies: Ints, taps: int) -> list[list[int]]:
    """Sets of two or more taps on parallel links, in ascending order.

    `copies`, int64[taps or less, same]: packets first seen at the one tap and again at the other.
    With only one set, an idle tap belongs to it, because unused links must be visible.
    """
    packets_at = np.bincount(seen.tap, seen.packets, taps).astype(np.int64)
    first_here = packets_at[: len(copies)] - copies.sum(axis=0)
    begins = np.searchsorted(seen.group, np.arange(int(seen.group.max(initial=-1)) + 2))
    sizes = np.diff(begins)
    first_of_set = np.arange(taps)
    by_tap = np.argsort(seen.tap, kind="stable")
    for own in np.split(by_tap, np.flatnonzero(np.diff(seen.tap[by_tap])) + 1):
        if not len(own):
            break
        a = int(seen.tap[own[0]])
        # The records of all groups that were at this tap.
        size = sizes[seen.group[own]]
        first = np.repeat(begins[seen.group[own]] - np.cumsum(size) + size, size)
        rows = np.arange(len(first)) + first
        least = np.minimum(np.repeat(seen.packets[own], size), seen.packets[rows])
        together = np.bincount(seen.tap[rows], least, taps)
        shared = _packets_in_common(a, first_here, copies, taps)
        joined = (together > 0) & (shared <= _SERIES_SHARE * together)
        joined[a] = True
        joining = np.zeros(taps, bool)
        joining[first_of_set[joined]] = True
        first_of_set[joining[first_of_set]] = np.argmax(joining)
    sets: dict[int, list[int]] = {}
    for tap in np.flatnonzero(packets_at).tolist():
        sets.setdefault(int(first_of_set[tap]), []).append(tap)
    parallel = [s for s in sets.values() if len(s) > 1]
    if len(parallel) == 1:
        parallel = [sorted([*parallel[0], *np.flatnonzero(packets_at == 0).tolist()])]
    return parallel


def _packets_in_common(a: int, first_here: Ints, copies: Ints, taps: int) -> Ints:
    """Lower bound of the packets that a tap has in common with each other tap, int64[taps].

    `first_here`: packets of each tap that no other tap saw before.
    The copy counts relate later taps only to the first: of n packets first seen at one tap, two
    others that saw b and c of them have at least b + c - n in common.
    """
    shared = np.zeros(taps, np.int64)
    if a < len(copies):
        known = shared[: len(copies)]
        known += copies[a] + copies[:, a]
        for first in np.flatnonzero(copies[:, a]):
            others = np.flatnonzero(copies[first])
            overlap = copies[first, a] + copies[first, others] - max(int(first_here[first]), 0)
            known[others] = np.maximum(known[others], overlap)
    return shared


def sides(pairs: Iterable[tuple[int, int, int]]) -> dict[int, int] | None:
    """The side (0 or 1) of each host relative to a set of links; None when unknown.

    `pairs` are (source, destination, hop limit) of packets that crossed the
    links. Every packet goes from one side to the other, so the sides are a
    2-colouring of the graph of hosts. If the graph is not connected, equal hop limits show which
    sources are on the same side. The host with the lowest index is on side 0.
    """
    opposite: dict[Any, list[tuple[Any, int]]] = {}

    def relate(a: Any, b: Any, differ: int) -> None:
        opposite.setdefault(a, []).append((b, differ))
        opposite.setdefault(b, []).append((a, differ))

    triples = sorted({pair for pair in pairs if pair[0] != pair[1]})
    for src, dst, _ in triples:
        relate(src, dst, 1)
    colours, parts = _coloured(opposite)
    if colours is not None and parts > 1:
        for src, _, hop_limit in triples:
            relate(src, ("hop limit", hop_limit), 0)
        colours, parts = _coloured(opposite)
    if colours is None or parts != 1:
        return None
    return {host: side for host, side in colours.items() if isinstance(host, int)}


def _coloured(graph: dict[Any, list[tuple[Any, int]]]) -> tuple[dict[Any, int] | None, int]:
    """A colouring (None if impossible) and the number of connected components."""
    colours: dict[Any, int] = {}
    parts = 0
    for start in graph:
        if start in colours:
            continue
        parts += 1
        colours[start] = 0
        stack = [start]
        while stack:
            node = stack.pop()
            for other, differ in graph[node]:
                if other not in colours:
                    colours[other] = colours[node] ^ differ
                    stack.append(other)
                elif colours[other] != colours[node] ^ differ:
                    return None, parts
    return colours, parts


def tap_imbalances(
    usage: PathUsage,
    src: UInt32s,
    dst: UInt32s,
    copies: Ints,
    tap_names: Sequence[str],
    host_names: Sequence[str],
    unplaced: Container[int] = (),
) -> list[Imbalance]:
    """The imbalance of every set of parallel taps, per direction where known.

    `usage` has the key `tap`; `src` and `dst` are the endpoints of its flows,
    indices into `host_names`; `copies` as for `parallel_tap_sets`. Bytes are those of all packets
    except CNPs; flows are those with data packets, or all if there are only ACKs. Taps in
    `unplaced` stand for several links: they are no path.
    """
    records = usage.records()
    taps = records.paths["key"].astype(np.int64)
    groups, seen = _crossings(records, src, dst)
    found = []
    for parallel in parallel_tap_sets(seen, copies, len(tap_names)):
        members = [tap for tap in parallel if tap not in unplaced]
        if len(members) < 2:
            continue
        inside = np.isin(taps, members)
        used = np.unique(seen.group[np.isin(seen.tap, members)])
        side = sides((int(s), int(d), int(level)) for s, d, level in groups[used])
        labels = [tap_names[t] for t in members]
        name = _listed(labels)
        if side is None:
            found.append(_of_taps(f"{name}, both directions", labels, records, inside, members))
            continue
        side_of = np.full(len(host_names), -1)
        side_of[list(side)] = list(side.values())
        for direction in (0, 1):
            rows = inside & (side_of[src[records.flow]] == direction)
            hosts = sorted(host_names[h] for h in np.unique(src[records.flow[rows]]))
            where = f"{name}, from {_listed(hosts)}"
            found.append(_of_taps(where, labels, records, rows, members))
    return [imbalance for imbalance in found if imbalance is not None]


def _crossings(records: UsageRecords, src: UInt32s, dst: UInt32s) -> tuple[Ints, Crossings]:
    """The groups (source, destination, level), and their packets at each tap."""
    crossing = np.stack([src[records.flow], dst[records.flow], records.level], axis=1)
    groups, group = np.unique(crossing.astype(np.int64), axis=0, return_inverse=True)
    named = records.paths["key"] != OTHER
    at = (group.reshape(-1) << 16) | records.paths["key"].astype(np.int64)
    places, place = np.unique(at[named], return_inverse=True)
    packets = np.bincount(place, records.paths["packets"][named], len(places)).astype(np.int64)
    return groups, Crossings(places >> 16, places & 0xFFFF, packets)


def tap_places(usage: PathUsage, src: UInt32s, dst: UInt32s, copies: Ints, taps: int) -> Ints:
    """The place of each tap, int64[taps]: parallel taps share a number."""
    _, seen = _crossings(usage.records(), src, dst)
    places = np.arange(taps)
    for members in parallel_tap_sets(seen, copies, taps):
        places[members] = members[0]
    return places


def _of_taps(
    name: str, labels: list[str], records: UsageRecords, rows: Bools, members: list[int]
) -> Imbalance | None:
    counted = rows & records.data if np.any(rows & records.data) else rows
    paths = [NOTHING] * len(members)
    flows = np.zeros(len(members), np.int64)
    every = np.zeros(len(members), np.int64)
    by_tap = np.flatnonzero(rows)
    by_tap = by_tap[np.argsort(records.paths["key"][by_tap], kind="stable")]
    ends = np.searchsorted(records.paths["key"][by_tap], np.add.outer(members, (0, 1)))
    for i, (first, end) in enumerate(ends):
        here = by_tap[first:end]
        paths[i] = together(carried(records.paths[here]))
        flows[i] = len(np.unique(records.flow[here[counted[here]]]))
        every[i] = len(np.unique(records.flow[here]))
    distinct = len(np.unique(records.flow[counted]))
    return imbalance_of(
        name,
        "tap",
        False,
        labels,
        paths,
        distinct,
        flows,
        all_flows_per_path=every if int(every.sum()) > int(flows.sum()) else None,
    )


def entropy_imbalances(
    usage: PathUsage, flows: int, flow_name: Callable[[int], str]
) -> list[Imbalance]:
    """Imbalance of the entropy values of the largest sprayed flows; one set per flow."""
    sprayed = []
    for flow in range(flows):
        paths = usage.paths(flow)
        if len(paths) > 1 and width(paths["wire_bytes"]) >= SPRAYED_WIDTH:
            sprayed.append((-int(paths["wire_bytes"].sum()), flow, paths))
    found = []
    for _, flow, paths in sorted(sprayed, key=lambda s: s[:2])[:LISTED_FLOWS]:
        labels = [usage.path_name(int(key)) for key in paths["key"]]
        name = f"entropy values of {flow_name(flow)}"
        imbalance = imbalance_of(name, usage.key, usage.inferred, labels, carried(paths), 1)
        if imbalance is not None:
            found.append(imbalance)
    return found


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _LISTED_HOSTS:
        return ", ".join(names)
    return f"{', '.join(names[:_LISTED_HOSTS])} and {len(names) - _LISTED_HOSTS} more"
