"""Detects taps on parallel links and the directions of their packets.

A capture does not hold the topology of its taps. Packets of one host pair with the same hop limit
are at the same distance from the source; taps with such packets share the traffic between the two
hosts, unless they see the same packets (taps in series without a router between them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ....kernels.kernel import Bools, Ints, UInt32s
from ...results.paths import Imbalance
from ...statistics.shares import NOTHING, carried, together, width
from .imbalance import imbalance_of
from .spraying import PathUsage, UsageRecords

SPRAYED_WIDTH = 1.5
"""Flows with at least this spraying width count as sprayed."""
LISTED_FLOWS = 16
"""Largest number of sprayed flows, by bytes, with entropy values reported as a set of paths."""

_SERIES_SHARE = 0.1
"""Taps that share more than this fraction of the smaller tap's packets are in series."""
_LISTED_HOSTS = 4


def parallel_tap_sets(seen: Ints, copies: Ints) -> list[list[int]]:
    """Sets of two or more taps on parallel links, in ascending order.

    `seen`, int64[groups, taps]: packets of each group at each tap, copies
    included; a group is the packets of one source, destination and hop limit, which may be spread
    over parallel links. `copies`, int64[taps, taps]: packets first seen at the one tap and again at
    the other. With only one set, an idle tap belongs to it, because unused links must be visible.
    """
    taps = seen.shape[1]
    shared = _packets_in_common(seen, copies)
    leader = list(range(taps))

    def find(tap: int) -> int:
        while leader[tap] != tap:
            tap = leader[tap]
        return tap

    for a in range(taps):
        together = np.minimum(seen[:, a : a + 1], seen).sum(axis=0)
        for b in np.flatnonzero((together > 0) & (shared[a] <= _SERIES_SHARE * together)):
            if b > a:
                leader[find(int(b))] = find(a)
    sets: dict[int, list[int]] = {}
    for tap in range(taps):
        sets.setdefault(find(tap), []).append(tap)
    parallel = [s for s in sets.values() if len(s) > 1]
    if len(parallel) == 1:
        idle = np.flatnonzero(seen.sum(axis=0) == 0)
        parallel = [sorted([*parallel[0], *(int(t) for t in idle)])]
    return parallel


def _packets_in_common(seen: Ints, copies: Ints) -> Ints:
    """Lower bound of the packets that each two taps have in common.

    The copy counts relate later taps only to the first: of n packets first seen at one tap, two
    others that saw b and c of them have at least b + c - n in common.
    """
    shared = copies + copies.T
    first_here = seen.sum(axis=0) - copies.sum(axis=0)
    for a in range(len(copies)):
        overlap = copies[a][:, None] + copies[a][None, :] - max(int(first_here[a]), 0)
        overlap[copies[a] == 0, :] = 0
        overlap[:, copies[a] == 0] = 0
        shared = np.maximum(shared, overlap)
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
) -> list[Imbalance]:
    """The imbalance of every set of parallel taps, per direction where known.

    `usage` has the key `tap`; `src` and `dst` are the endpoints of its flows,
    indices into `host_names`; `copies` as for `parallel_tap_sets`. Bytes are those of all packets
    except CNPs; flows are those with data packets, or all if there are only ACKs.
    """
    records = usage.records()
    taps = records.paths["key"].astype(np.int64)
    groups, seen = _crossings(records, src, dst, len(tap_names))
    copies = _padded(copies, len(tap_names))
    found = []
    for members in parallel_tap_sets(seen, copies):
        inside = np.isin(taps, members)
        used = np.flatnonzero(seen[:, members].any(axis=1))
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


def _crossings(records: UsageRecords, src: UInt32s, dst: UInt32s, taps: int) -> tuple[Ints, Ints]:
    """The groups (source, destination, level) and their packets at each tap."""
    crossing = np.stack([src[records.flow], dst[records.flow], records.level], axis=1)
    groups, group = np.unique(crossing.astype(np.int64), axis=0, return_inverse=True)
    seen = np.zeros((len(groups), taps), np.int64)
    at = records.paths["key"].astype(np.int64)
    np.add.at(seen, (group.reshape(-1), at), records.paths["packets"])
    return groups, seen


def tap_places(
    usage: PathUsage,
    src: UInt32s,
    dst: UInt32s,
    copies: Ints,
    taps: int,
) -> Ints:
    """The place of each tap, int64[taps]: parallel taps share a number."""
    _, seen = _crossings(usage.records(), src, dst, taps)
    places = np.arange(taps)
    for members in parallel_tap_sets(seen, _padded(copies, taps)):
        places[members] = members[0]
    return places


def _of_taps(
    name: str,
    labels: list[str],
    records: UsageRecords,
    rows: Bools,
    members: list[int],
) -> Imbalance | None:
    counted = rows & records.data if np.any(rows & records.data) else rows
    paths = [NOTHING] * len(members)
    flows = np.zeros(len(members), np.int64)
    for i, tap in enumerate(members):
        here = records.paths["key"] == tap
        paths[i] = together(carried(records.paths[rows & here]))
        flows[i] = len(np.unique(records.flow[counted & here]))
    distinct = len(np.unique(records.flow[counted]))
    return imbalance_of(name, "tap", False, labels, paths, distinct, flows)


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


def _padded(copies: Ints, taps: int) -> Ints:
    """The matrix for all taps: the tracker's matrix ends at the last tap with packets."""
    padded = np.zeros((taps, taps), np.int64)
    padded[: len(copies), : len(copies)] = copies
    return padded


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _LISTED_HOSTS:
        return ", ".join(names)
    return f"{', '.join(names[:_LISTED_HOSTS])} and {len(names) - _LISTED_HOSTS} more"
