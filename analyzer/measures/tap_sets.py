"""The imbalance of parallel taps per direction of their packets, and of entropy values."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import numpy as np

from ...kernels.kernel import Bools, Ints, UInt32s
from ..results.base import Imbalance
from ..statistics.shares import NOTHING, carried, together, width
from .hops.vantage import Crossings, parallel_points, sides
from .path_table import OTHER
from .spraying import PathUsage, UsageRecords, imbalance_of

SPRAYED_WIDTH = 1.5
"""Flows with at least this spraying width count as sprayed."""
LISTED_FLOWS = 16
"""Largest number of sprayed flows, by bytes, with entropy values reported as a set of paths."""

_LISTED_HOSTS = 4


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
    indices into `host_names`; `copies` as for `parallel_points`. Bytes are those of all packets
    except CNPs; flows are those with data packets, or all if there are only ACKs. Taps in
    `unplaced` stand for several links: they are no path.
    """
    records = usage.records()
    taps = records.paths["key"].astype(np.int64)
    groups, seen = _crossings(records, src, dst)
    results = []
    for parallel in parallel_points(seen, copies, len(tap_names)):
        members = [tap for tap in parallel if tap not in unplaced]
        if len(members) < 2:
            continue
        inside = np.isin(taps, members)
        used = np.unique(seen.group[np.isin(seen.tap, members)])
        side = sides((int(s), int(d), int(level)) for s, d, level in groups[used])
        labels = [tap_names[t] for t in members]
        name = _listed(labels)
        if side is None:
            results.append(_of_taps(f"{name}, both directions", labels, records, inside, members))
            continue
        side_of = np.full(len(host_names), -1)
        side_of[list(side)] = list(side.values())
        for direction in (0, 1):
            rows = inside & (side_of[src[records.flow]] == direction)
            hosts = sorted(host_names[h] for h in np.unique(src[records.flow[rows]]))
            where = f"{name}, from {_listed(hosts)}"
            results.append(_of_taps(where, labels, records, rows, members))
    return [imbalance for imbalance in results if imbalance is not None]


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
    for parallel in parallel_points(seen, copies, taps):
        places[list(parallel)] = min(parallel)
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
        at_tap = by_tap[first:end]
        paths[i] = together(carried(records.paths[at_tap]))
        flows[i] = len(np.unique(records.flow[at_tap[counted[at_tap]]]))
        every[i] = len(np.unique(records.flow[at_tap]))
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
    imbalances = []
    for _, flow, paths in sorted(sprayed, key=lambda s: s[:2])[:LISTED_FLOWS]:
        labels = [usage.path_name(int(key)) for key in paths["key"]]
        name = f"entropy values of {flow_name(flow)}"
        imbalance = imbalance_of(name, usage.key, usage.inferred, labels, carried(paths), 1)
        if imbalance is not None:
            imbalances.append(imbalance)
    return imbalances


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _LISTED_HOSTS:
        return ", ".join(names)
    return f"{', '.join(names[:_LISTED_HOSTS])} and {len(names) - _LISTED_HOSTS} more"
