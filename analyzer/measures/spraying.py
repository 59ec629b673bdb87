"""How each flow's bytes spread over its paths, and how often it changes path.

Spraying is about packets that carry a flow's work, so width, fairness and
switches look at its data packets (requests and READ responses) only; a flow
that merely acknowledges is judged by its ACKs, and CNPs, which a network card
sends from a source port of its own choice, never make a path where others do.
The listed paths still add up to all bytes of the flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..opcodes import ACKNOWLEDGE, CNP, OPCODE_CLASS
from ..results import PathShare, Quantiles, Spraying
from ..track.batch import TrackedBatch
from .pathtable import ENTROPY, EVIDENCE, LEVELS, OTHER, PATH, TAP, PathTable

Key = Literal["entropy", "tap", "srv6"]

LISTED_PATHS = 64
"""Longest list of paths in a result, the line for the rest included."""

_ABOUT_AS_WIDE = 0.9

_DATA, _ACKS, _CNPS = range(3)  # the lanes of a flow, in the order in which they stand for it
_LANES = 4
_LANE_OF: Final[NDArray[np.uint8]] = np.where(
    OPCODE_CLASS & ACKNOWLEDGE, _ACKS, np.where(np.arange(256) >> 5 == CNP, _CNPS, _DATA)
).astype(np.uint8)

_KINDS: Final = {"entropy": ENTROPY, "tap": TAP, "srv6": EVIDENCE}


class _Level(NamedTuple):
    """One flow at one level: PATH records of the lane that stands for it, and of its others."""

    measured: NDArray[Any]
    rest: NDArray[Any]
    switches: int


class UsageRecords(NamedTuple):
    """Equally long arrays."""

    flow: NDArray[np.int64]
    level: NDArray[np.int64]
    """Hop limit modulo 8; 0 unless the key is `tap`."""
    data: NDArray[np.bool_]
    """Counts data packets, not ACKs or CNPs."""
    paths: NDArray[Any]
    """`pathtable.PATH`: key, packets, bytes, ..."""


class PathUsage:
    """Bytes, packets, late and CE-marked packets per flow and path; path switches per flow.

    The key of a path is `entropy` (UDP source port, with a non-zero IPv6 flow
    label as flow_label << 16 | port), `tap` (where the packet was seen) or
    `srv6` (index of the path evidence, 0 for packets without).

    With `tap`, copies of a packet at further taps count too: a packet crosses
    several links. Taps at one distance from the source are kept together by
    the packet's hop limit, so links in series (each behind a router) are not
    mistaken for parallel paths.

    A flow has at most `pathtable.MAX_PATHS` paths of its own; bytes of all
    further ones are counted as one path named "other".
    """

    def __init__(self, key: Key = "entropy") -> None:
        self.key: Key = key
        self._levels = LEVELS if key == "tap" else 1
        self._table = PathTable(_KINDS[key], _LANE_OF, _LANES * self._levels)
        self._order: NDArray[np.int64] | None = None
        self._sorted_lanes: NDArray[np.int64] = np.empty(0, np.int64)

    def update(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self._order = None
        self._table.add(batch)

    def merge(self, other: PathUsage, flow_map: NDArray[np.int32]) -> None:
        """Add the usage of rows that come after ours; its flow i is our flow `flow_map[i]`."""
        self._order = None
        self._table.merge(other._table, flow_map)

    def spraying(self, flow: int, names: Callable[[int], str] | None = None) -> Spraying | None:
        """The spraying of one flow; None when this key says nothing about it.

        `names` turns a key into text (a tap's or segment list's name); entropy
        values name themselves. Of several levels (key `tap`) the one with the
        widest spread is reported.
        """
        level = self._widest(flow)
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
        """Whether the key only hints at the real path."""
        return self.key == "entropy"

    def path_name(self, key: int) -> str:
        """The text for a key without further knowledge."""
        if key == OTHER:
            return "other"
        return entropy_name(key) if self.key == "entropy" else str(key)

    def paths(self, flow: int) -> NDArray[Any]:
        """The `pathtable.PATH` records of the packets that stand for the flow."""
        level = self._widest(flow)
        return np.zeros(0, PATH) if level is None else level.measured

    def packets_by_key(self, flow: int) -> dict[int, int]:
        """All packets of the flow per key, in ascending order; with `tap`, copies included."""
        packets: dict[int, int] = {}
        for level in self._of_flow(flow):
            for record in (*level.measured, *level.rest):
                key = int(record["key"])
                packets[key] = packets.get(key, 0) + int(record["packets"])
        return dict(sorted(packets.items()))

    def paths_seen(self, flow: int) -> int:
        """Different keys of the packets that stand for the flow; 0 without packets."""
        keys = [level.measured["key"] for level in self._of_flow(flow)]
        return len(np.unique(np.concatenate(keys)))

    def records(self) -> UsageRecords:
        """Everything counted, one row per flow, level, kind of packets and path."""
        paths = self._table.paths
        flow, lane = np.divmod(paths["lane"], self._table.lanes_per_flow)
        return UsageRecords(flow, lane // _LANES, lane % _LANES == _DATA, paths)

    def _widest(self, flow: int) -> _Level | None:
        """The level that shows the spread: of about the widest ones the one with most bytes."""
        levels = [level for level in self._of_flow(flow) if len(level.measured)]
        if len(levels) < 2:
            return levels[0] if levels else None
        widths = [width(_weights(level.measured)) for level in levels]
        near = max(widths) * _ABOUT_AS_WIDE
        return max((lv for lv, w in zip(levels, widths, strict=True) if w >= near), key=_bytes)

    def _of_flow(self, flow: int) -> list[_Level]:
        if self._order is None:
            lanes = self._table.paths["lane"]
            self._order = np.argsort(lanes, kind="stable")
            self._sorted_lanes = lanes[self._order]
        first = flow * self._table.lanes_per_flow
        stop = first + self._table.lanes_per_flow
        bounds = np.searchsorted(self._sorted_lanes, np.arange(first, stop + 1))
        lanes_of_flow = [
            self._table.paths[self._order[a:b]]
            for a, b in zip(bounds[:-1], bounds[1:], strict=True)
        ]
        kind = next(
            (k for k in (_DATA, _ACKS, _CNPS) if any(map(len, lanes_of_flow[k::_LANES]))), _DATA
        )
        levels = []
        for at in range(0, len(lanes_of_flow), _LANES):
            others = [lanes_of_flow[at + k] for k in (_DATA, _ACKS, _CNPS) if k != kind]
            lane = first + at + kind
            measured = lanes_of_flow[at + kind]
            switches = int(self._table.lanes["switches"][lane]) if len(measured) else 0
            levels.append(_Level(measured, np.concatenate(others), switches))
        return levels


def entropy_name(key: int) -> str:
    """`49152`, or `49152/0x12345` with a flow label."""
    label = key >> 16
    return f"{key & 0xFFFF}/0x{label:05x}" if label else str(key)


def width(weights: NDArray[Any]) -> float:
    """exp(Shannon entropy): 1 for a single path, n for n equal ones."""
    used = weights[weights > 0].astype(np.float64)
    share = used / used.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def jain(weights: NDArray[Any]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one carries everything."""
    w = weights.astype(np.float64)
    return float(w.sum() ** 2 / (len(w) * np.sum(w * w)))


def _weights(paths: NDArray[Any]) -> NDArray[np.int64]:
    """Bytes per path; packets where a damaged capture states no bytes at all."""
    weights: NDArray[np.int64] = paths["wire_bytes"]
    return weights if weights.any() else paths["packets"]


def _bytes(level: _Level) -> int:
    return int(level.measured["wire_bytes"].sum())


def _lifetimes(paths: NDArray[Any]) -> Quantiles:
    """Time from first to last packet of each path, ns."""
    life = (paths["last_ns"] - paths["first_ns"]).astype(np.float64)
    p50, p90, p99, p999 = (float(q) for q in np.quantile(life, (0.5, 0.9, 0.99, 0.999)))
    return Quantiles(
        len(life), float(life.min()), float(life.mean()), p50, p90, p99, p999, float(life.max())
    )


def _shares(level: _Level, names: Callable[[int], str]) -> list[PathShare]:
    """The paths of a flow, the largest first; they add up to all its bytes at this level."""
    paths = level.measured.copy()
    apart = []
    index = {int(key): i for i, key in enumerate(paths["key"])}
    for record in level.rest:
        at = index.get(int(record["key"]))
        if at is None:
            apart.append(record)
        else:
            paths[at] = total([paths[at], record])
    paths = paths[np.lexsort((paths["key"], -paths["packets"], -paths["wire_bytes"]))]
    lines = [(names(int(p["key"])) if p["key"] != OTHER else "other", p) for p in paths]
    if apart:
        lines.append(("control packets", total(apart)))
    if len(lines) > LISTED_PATHS:
        rest = [p for _, p in lines[LISTED_PATHS - 1 :]]
        lines[LISTED_PATHS - 1 :] = [(f"{len(rest)} more", total(rest))]
    flow_bytes = sum(int(p["wire_bytes"]) for _, p in lines)
    return [path_share(name, p, flow_bytes) for name, p in lines]


def total(records: list[Any]) -> Any:
    """One PATH record for several (lane and key are those of the first)."""
    many = np.array(records, PATH)
    one, used = many[0].copy(), many[many["packets"] > 0]
    if len(used):
        for name in ("packets", "wire_bytes", "late", "marked"):
            one[name] = used[name].sum()
        one["first_ns"], one["last_ns"] = used["first_ns"].min(), used["last_ns"].max()
    return one


def path_share(name: str, record: Any, all_bytes: int) -> PathShare:
    """A PATH record as a result; its share is that of `all_bytes`."""
    wire_bytes = int(record["wire_bytes"])
    return PathShare(
        path=name,
        packets=int(record["packets"]),
        wire_bytes=wire_bytes,
        share=wire_bytes / all_bytes if all_bytes else 0.0,
        reordered_packets=int(record["late"]),
        ecn_marked_packets=int(record["marked"]),
        first_time_ns=int(record["first_ns"]) if record["packets"] else None,
        last_time_ns=int(record["last_ns"]) if record["packets"] else None,
    )
