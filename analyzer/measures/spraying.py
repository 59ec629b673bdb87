"""How the bytes of flows spread over parallel paths, taps and entropy values.

Width, fairness and switches use only data packets (requests and READ responses). A flow without
data is judged by its ACKs. CNPs, for which a NIC chooses its own source port, make no path if the
flow has other packets. The listed paths still add up to all bytes of the flow.

The flow imbalance metric is FIM(L) = 100 / |L| * sum over l of |n_l - mean| / mean
for the flows (or bytes) n_l on each path l of the set L: the mean absolute
relative deviation, in percent. With weights (link capacities) each path's fair share replaces the
mean. Uniform hashing does not give 0: `expected_fim` is the value of ideal uniform hashing,
`best_fim` the minimum over all placements of whole flows.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from ...kernels.kernel import Array, Bools, Bytes, Floats, Int32s, Ints, NamedTuple, UInt32s
from ..results.base import Imbalance, PathShare, Quantiles, Spraying
from ..statistics.per_flow import Kept
from ..statistics.shares import NOTHING, Carried, carried, jain, path_shares, together, width
from ..track.batch import TrackedBatch
from ..wire.bth import CARRIES_DATA, CNP
from .hops.vantage import Crossings, parallel_points, sides
from .path_table import ENTROPY, EVIDENCE, LANES, LEVELS, OTHER, PATH, TAP, PathTable

Key = Literal["entropy", "tap", "srv6"]

_ABOUT_AS_WIDE = 0.9

_DATA, _ACKS, _CNPS = range(3)  # the lanes of a flow, by priority as its representative
_LANES_OF_A_FLOW = LEVELS * LANES
_LANE_OF: Final[Bytes] = np.where(
    CARRIES_DATA, _DATA, np.where(np.arange(256) >> 5 == CNP, _CNPS, _ACKS)
).astype(np.uint8)

_KINDS: Final = {"entropy": ENTROPY, "tap": TAP, "srv6": EVIDENCE}


class _Level(NamedTuple):
    """One flow at one level: PATH records of its representative lane and of the others."""

    measured: Array
    rest: list[Array]
    switches: int


class UsageRecords(NamedTuple):
    """Arrays of equal length."""

    flow: Ints
    level: Ints
    """Hop limit modulo 8; 0 unless the key is `tap`."""
    data: Bools
    """Counts data packets, not ACKs or CNPs."""
    paths: Array
    """`path_table.PATH`: key, packets, bytes, ..."""


class PathUsage:
    """Bytes, packets, late and CE-marked packets per flow and path; path switches per flow.

    The key of a path is `entropy` (UDP source port, with a non-zero IPv6 flow
    label as flow_label << 16 | port), `tap` (where the packet was seen) or
    `srv6` (index of the path evidence, 0 for packets without).

    With `tap`, copies of a packet at further taps also count: a packet crosses several links. The
    hop limit groups taps at the same distance from the source, so that links in series (with
    routers between them) are not mistaken for parallel paths.

    A flow has at most `path_table.MAX_PATHS` paths of its own; bytes of all
    further ones are counted as one path named "other".
    """

    def __init__(self, key: Key = "entropy") -> None:
        self.key: Key = key
        self._table = PathTable(_KINDS[key], _LANE_OF)
        self._sorted: Array | None = None  # the records by flow, level and lane, built on demand
        self._sorted_lanes: Ints = np.empty(0, np.int64)
        self._has_keys = False
        self._asked: tuple[int, list[_Level]] = (-1, [])  # of the latest flow queried

    def update(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self._sorted = None
        self._table.add(batch)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        self._sorted = None
        self._table.keep(kept)

    def merge(self, other: PathUsage, flow_map: Int32s) -> None:
        """Take the usage of other flows; see `PerFlow.merge`."""
        self._sorted = None
        self._table.merge(other._table, flow_map)

    def spraying(
        self, flow: int, names: Callable[[int], str] | None = None, places: Ints | None = None
    ) -> Spraying | None:
        """The spraying of one flow; None when the key does not apply.

        `names` turns a key into text (a tap's or segment list's name); entropy values need no
        names. Of several levels (key `tap`) the one with the widest spread is reported. Only taps
        of one place (`tap_sets.tap_places`) are paths: taps in series see the same packets.
        """
        if self.key == "srv6" and not self._keyed():
            return None
        level = self._widest(flow, places)
        if level is None or (self.key == "srv6" and not level.measured["key"].any()):
            return None
        paths, weights = level.measured, _weights(level.measured)
        duration = int(paths["last_ns"].max()) - int(paths["first_ns"].min())
        return Spraying(
            path_by=self.key,
            inferred=self.inferred,
            paths_seen=len(paths),
            width=width(weights),
            jain=jain(weights),
            switches=level.switches,
            switches_per_second=level.switches * 1e9 / duration if duration > 0 else None,
            path_lifetime_ns=_lifetimes(paths),
            paths=_shares(level, names or self.path_name),
        )

    @property
    def inferred(self) -> bool:
        """Whether the key only indicates the real path."""
        return self.key == "entropy"

    def path_name(self, key: int) -> str:
        """The default text of a key."""
        if key == OTHER:
            return "other"
        return entropy_name(key) if self.key == "entropy" else str(key)

    def paths(self, flow: int) -> Array:
        """The `path_table.PATH` records of the representative packets of the flow."""
        level = self._widest(flow)
        return np.zeros(0, PATH) if level is None else level.measured

    def packets_by_key(self, flow: int) -> dict[int, int]:
        """All packets of the flow per key, in ascending order; with `tap`, copies included."""
        packets: Counter[int] = Counter()
        for _, lane in self._lanes_of(flow):
            for key, count in zip(lane["key"].tolist(), lane["packets"].tolist(), strict=True):
                packets[key] += count
        return dict(sorted(packets.items()))

    def paths_seen(self, flow: int) -> int:
        """Different keys of the representative packets of the flow; 0 without packets."""
        return len({key for level in self._of_flow(flow) for key in level.measured["key"].tolist()})

    def records(self) -> UsageRecords:
        """Everything counted, one row per flow, level, kind of packets and path."""
        flow, level, lane = self._table.places()
        return UsageRecords(flow, level, lane == _DATA, self._table.paths)

    def _widest(self, flow: int, places: Ints | None = None) -> _Level | None:
        """The level to report: among the widest ones the level with the most bytes."""
        levels = self._of_flow(flow)
        if places is not None:
            levels = [part for level in levels for part in _by_place(level, places)]
        if len(levels) < 2:
            return levels[0] if levels else None
        widths = [width(_weights(level.measured)) for level in levels]
        near = max(widths) * _ABOUT_AS_WIDE
        return max((lv for lv, w in zip(levels, widths, strict=True) if w >= near), key=_bytes)

    def _of_flow(self, flow: int) -> list[_Level]:
        """The levels with packets of the representative kind of the flow."""
        if self._sorted is None or self._asked[0] != flow:
            self._asked = flow, self._levels_of(self._lanes_of(flow), flow)
        return self._asked[1]

    def _levels_of(self, lanes: list[tuple[int, Array]], flow: int) -> list[_Level]:
        kind = min((lane % LANES for lane, _ in lanes), default=_DATA)
        return [
            _Level(
                paths,
                [
                    rest
                    for other, rest in lanes
                    if other != lane and other // LANES == lane // LANES
                ],
                self._table.switches(flow, lane // LANES, lane % LANES),
            )
            for lane, paths in lanes
            if lane % LANES == kind
        ]

    def _by_lane(self) -> Array:
        """All records, sorted by flow, level and lane."""
        if self._sorted is None:
            paths = self._table.paths
            flow, level, lane = self._table.places()
            lanes = flow * _LANES_OF_A_FLOW + level * LANES + lane
            order = np.argsort(lanes, kind="stable")
            self._sorted, self._sorted_lanes = paths[order], lanes[order]
            self._has_keys = bool(paths["key"].any())
        return self._sorted

    def _keyed(self) -> bool:
        """Whether any packet has a key other than 0."""
        self._by_lane()
        return self._has_keys

    def _lanes_of(self, flow: int) -> list[tuple[int, Array]]:
        """The lanes of a flow that have records: level * LANES + kind, and the records."""
        by_lane = self._by_lane()
        first = flow * _LANES_OF_A_FLOW
        begin, end = np.searchsorted(self._sorted_lanes, (first, first + _LANES_OF_A_FLOW))
        records = by_lane[begin:end]
        lane = self._sorted_lanes[begin:end] - first
        edges = [0, *(np.flatnonzero(np.diff(lane)) + 1).tolist(), len(records)]
        return [(int(lane[a]), records[a:b]) for a, b in pairwise(edges) if a < b]


def _by_place(level: _Level, places: Ints) -> list[_Level]:
    """The level once for each place among its taps."""
    place_of = places[level.measured["key"]]
    if (place_of == place_of[0]).all():
        return [level]
    parts = []
    for place in np.unique(place_of):
        measured = level.measured[place_of == place]
        rest = [lane[places[lane["key"]] == place] for lane in level.rest]
        # Switches include steps between places and are therefore an upper bound.
        parts.append(_Level(measured, rest, level.switches if len(measured) > 1 else 0))
    return parts


def entropy_name(key: int) -> str:
    """`49152`, or `49152/0x12345` with a flow label."""
    label = key >> 16
    return f"{key & 0xFFFF}/0x{label:05x}" if label else str(key)


def _weights(paths: Array) -> Ints:
    """Bytes per path; packets if a damaged capture states no bytes."""
    weights: Ints = paths["wire_bytes"]
    return weights if weights.any() else paths["packets"]


def _bytes(level: _Level) -> int:
    return int(level.measured["wire_bytes"].sum())


def _lifetimes(paths: Array) -> Quantiles:
    """Time from first to last packet of each path, ns."""
    life = paths["last_ns"] - paths["first_ns"]
    # Damaged timestamps may be centuries apart: the result saturates.
    life = np.sort(np.where(life < 0, np.int64(2**63 - 1), life))
    values = life.tolist()

    def quantile(q: float) -> float:
        place = q * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return float(values[below] + (place - below) * (values[above] - values[below]))

    return Quantiles(
        count=len(values),
        min=float(values[0]),
        mean=sum(values) / len(values),
        p50=quantile(0.5),
        p90=quantile(0.9),
        p99=quantile(0.99),
        p999=quantile(0.999),
        max=float(values[-1]),
    )


def _shares(level: _Level, names: Callable[[int], str]) -> list[PathShare]:
    """The paths of a flow, largest first; they add up to all its bytes at this level."""
    by_key = dict(zip(level.measured["key"].tolist(), carried(level.measured), strict=True))
    apart: list[Carried] = []
    for rest in level.rest:
        for key, part in zip(rest["key"].tolist(), carried(rest), strict=True):
            if key in by_key:
                by_key[key] = together((by_key[key], part))
            else:
                apart.append(part)
    lines = [
        ("other" if key == OTHER else names(key), part)
        for key, part in sorted(
            by_key.items(), key=lambda item: (-item[1].wire_bytes, -item[1].packets, item[0])
        )
    ]
    if apart:
        lines.append(("control packets", together(apart)))
    return path_shares(lines)


def fim(loads: Array, weights: Array | None = None) -> float | None:
    """FIM of the loads of a set of paths, percent; None without load."""
    if not loads.sum():
        return None
    fair = _shares_of_paths(len(loads), weights) * loads.sum()
    return 100 * float(np.mean(np.abs(loads - fair) / fair))


def expected_fim(flows: int, paths: int) -> float | None:
    """The expected FIM when each flow picks one of equal paths at random.

    Exact: the mean absolute deviation of a binomial number is
    2 m C(n, m) p^m (1-p)^(n-m+1) with m = floor(np) + 1 (de Moivre), divided by np; computed with
    logarithms so that millions of flows do not overflow. None without flows.
    """
    if not flows:
        return None
    n, p, m = flows, 1 / paths, flows // paths + 1
    if m > n:  # p = 1
        return 0.0
    log_choose = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
    log_term = math.log(m) + log_choose + m * math.log(p) + (n - m + 1) * math.log1p(-p)
    return 100 * (2 * math.exp(log_term) / (n * p))


def best_fim(flows: int, paths: int, weights: Array | None = None) -> float | None:
    """The smallest FIM over all placements of whole flows; None without flows."""
    if not flows:
        return None
    if weights is None:
        over = flows % paths
        return 100 * 2 * over * (paths - over) / (paths * flows)
    fair = [float(s) * flows for s in _shares_of_paths(paths, weights)]
    # The objective is separable and convex: placing each flow at the lowest cost is optimal.
    costs = [(_marginal(0, f), i) for i, f in enumerate(fair)]
    heapq.heapify(costs)
    counts = [0] * paths
    for _ in range(flows):
        _, i = costs[0]
        counts[i] += 1
        heapq.heapreplace(costs, (_marginal(counts[i], fair[i]), i))
    return fim(np.array(counts), weights)


def _marginal(count: int, fair: float) -> float:
    """Change of a path's relative deviation by one more flow."""
    return (abs(count + 1 - fair) - abs(count - fair)) / fair


def _shares_of_paths(paths: int, weights: Array | None) -> Floats:
    """The fair share of each path, as a fraction."""
    if weights is None:
        return np.full(paths, 1 / paths)
    if len(weights) != paths or not np.all(weights > 0):
        raise ValueError("weights must be above 0")
    shares: Floats = weights.astype(np.float64) / weights.sum()
    return shares


def max_over_mean(loads: Array) -> float:
    """The largest load over the mean load: 1 when all are equal."""
    return float(loads.max() / loads.mean())


def coefficient_of_variation(loads: Array) -> float:
    """Standard deviation (of the population) divided by the mean."""
    return float(loads.std() / loads.mean())


def imbalance_of(
    name: str,
    path_by: str,
    inferred: bool,
    labels: Sequence[str],
    paths: Sequence[Carried],
    flows: int,
    flows_per_path: Ints | None = None,
    all_flows_per_path: Ints | None = None,
) -> Imbalance | None:
    """The imbalance of a set of paths; None when it carried no bytes.

    `paths` has one item per path, also for idle ones, and `labels` their names; `flows_per_path`
    counts the flows on each (a flow on two paths counts on both), None when flows are not
    meaningful, as for the paths of a single flow. `all_flows_per_path` counts also the flows
    without data, which `flows_per_path` omits; None: there is none.
    """
    loads = np.array([path.wire_bytes for path in paths], np.int64)
    if not loads.any():
        return None
    placements = None if flows_per_path is None else int(flows_per_path.sum())
    largest_first = np.lexsort((np.arange(len(loads)), -loads))
    return Imbalance(
        name=name,
        path_by=path_by,
        inferred=inferred,
        paths=len(loads),
        flows=flows,
        wire_bytes=int(loads.sum()),
        fim_flows_percent=None if flows_per_path is None else fim(flows_per_path),
        fim_bytes_percent=fim(loads),
        fim_flows_chance_percent=(
            None if placements is None else expected_fim(placements, len(loads))
        ),
        fim_flows_best_percent=None if placements is None else best_fim(placements, len(loads)),
        max_over_mean=max_over_mean(loads),
        coefficient_of_variation=coefficient_of_variation(loads),
        jain=jain(loads),
        shares=path_shares([(labels[i], paths[i]) for i in largest_first]),
        fim_all_flows_percent=None if all_flows_per_path is None else fim(all_flows_per_path),
    )


# The imbalance of parallel taps per direction of their packets, and of entropy values.

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
