"""The result of following packets: what passed and what was lost from tap to tap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import state

GRACE_NS = 1_000_000
"""The transit of a hop that no packet passed: so long after its begin, and before its end, the
capture of a tap may not have what another tap saw."""

LOST = np.dtype(
    [
        ("flow", np.int32),
        ("label", np.uint32),
        ("time", np.int64),  # when it was last seen; of unlogged packets the first or last time
        ("frame", np.int64),  # 0 for packets without their own moment
        ("wire_bytes", np.int64),
        ("udp_sport", np.uint16),  # of packets with a moment
        ("hop_limit", np.int16),
        ("resent", np.bool_),  # its PSN was retransmitted later
        ("again", np.bool_),  # it is a retransmission itself
        (
            "wait",
            np.int64,
        ),  # ns: the longer one of the packets beside it at the output, -1: unknown
        ("run", np.int64),  # as in MOMENT; 0 without a moment
    ]
)

ENDED = np.dtype([("flow", np.int32), ("tap", np.int32), ("last_ns", np.int64)])
"""A tap after which no tap saw some packets of a flow, and when it saw the last of them."""

ARRIVED = np.dtype(
    [
        ("flow", np.int32),
        ("tap", np.int32),
        ("limit", np.int16),  # hop limit there
        ("packets", np.int64),
        ("first_ns", np.int64),
        ("last_ns", np.int64),
    ]
)
"""Packets of a flow that came to a tap, from whatever tap before it, until others began to come to
another tap with the same hop limit."""


@dataclass(slots=True)
class TapHop:
    """One hop, from tap to tap in one direction."""

    from_tap: int
    to_tap: int
    """-1 when nothing shows the next tap of lost packets."""
    expected_by: str | None = None
    total: Any = None
    """EDGE of all flows together; None when nothing passed."""
    passed: NDArray[Any] = field(default_factory=lambda: np.zeros(0, state.EDGE))
    """EDGE per flow that passed."""
    lost: NDArray[Any] = field(default_factory=lambda: np.zeros(0, LOST))
    windows: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((0, state.WINDOW_VALUES), np.int64)
    )

    @property
    def passed_packets(self) -> int:
        """Packets that went from tap to tap."""
        return 0 if self.total is None else int(self.total["packets"])

    @property
    def packets(self) -> int:
        """Packets that entered the hop."""
        return self.passed_packets + len(self.lost)


@dataclass(slots=True)
class Missed:
    """Packets that the capture of a tap missed: seen on both sides of it, or acknowledged."""

    tap: int
    flows: NDArray[np.int32]
    """The flow of each packet."""
    times: NDArray[np.int64]
    passed: int
    """Packets that the tap saw."""


@dataclass(slots=True)
class TapHops:
    """All hops, and what the captures missed."""

    hops: list[TapHop]
    missed: list[Missed]
    visits: NDArray[Any]
    """VISIT per flow and tap: moves between next taps."""
    window_ns: int
    origin_ns: int
    """Width and start of the first of `TapHop.windows`."""
    newest_ns: int
    undecided: int
    """Packets whose end cannot be judged: the next tap did not capture, or they were in flight when
    its capture ended; without identification also those that may be two transmissions."""
    elsewhere: int
    """Flows that took paths without a tap."""
    hurried: int
    """Packets followed for less than the horizon, for lack of memory."""
    names: list[str]
    """Short names of the taps."""
    devices: dict[tuple[int, int], str]
    """The device between two taps, where names show."""
    fabric_limits: Sequence[str] = ()
    """What the fabric does not show, one line each."""
    unlogged: int = 0
    """Ends and retransmissions without their own moment, for lack of memory."""
    left: int = 0
    """Packets that no later tap saw, of flows that also took paths without a tap: unknown whether
    they arrived."""
    hidden: int = 0
    """Packets that no later tap saw, and that a tap with gaps in its capture may have seen."""
    open_sources: frozenset[int] = frozenset()
    """Endpoints that spray packets, some of them over paths without a tap."""

    starts: NDArray[Any] = field(default_factory=lambda: np.zeros(0, state.EDGE))
    """EDGE per flow before the first tap that saw it."""
    arrived: NDArray[Any] = field(default_factory=lambda: np.zeros(0, ARRIVED))
    """ARRIVED by flow, hop limit and time."""
    ended: NDArray[Any] = field(default_factory=lambda: np.zeros(0, ENDED))
    """ENDED per flow and tap, arrived or not."""
    unknown: dict[int, int] = field(default_factory=dict)
    """By flow, the packets counted in `undecided`, `left` and `hidden`."""
    untapped: frozenset[int] = frozenset()
    """The flows counted in `elsewhere`."""
    first_seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Time of the first packet of each tap; the highest int64 without packets."""
    last_seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Time of the last packet of each tap; the lowest int64 without packets."""
    set_forward: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By tap whose clock is set forward: how many times, and by how much in all, ns."""

    def last_taps(self) -> dict[int, int]:
        """By flow: the tap that saw its packets last, where it is one."""
        return _only_taps(self.ended["flow"], self.ended["tap"])

    def first_taps(self) -> dict[int, int]:
        """By flow: the tap that saw its packets first, where it is one."""
        return _only_taps(self.starts["flow"], self.starts["to_tap"])

    def overlap(self) -> tuple[int, int] | None:
        """First and last time when all taps with packets capture; None if they never do."""
        used = self.first_seen <= self.last_seen
        if not used.any():
            return None
        begin, end = int(self.first_seen[used].max()), int(self.last_seen[used].min())
        return (begin, end) if begin < end else None

    def captured(self, tap: int, first_ns: int, last_ns: int) -> bool:
        """Whether the capture of a tap covers this time, as its packets tell."""
        return bool(self.first_seen[tap] <= first_ns and last_ns <= self.last_seen[tap])

    def arisen(self, counter: str) -> dict[int, int]:
        """Packets per flow that were marked, late, ... after their first tap: the sum of a counter
        of EDGE over all hops."""
        sums: dict[int, int] = defaultdict(int)
        for hop in self.hops:
            hit = hop.passed[hop.passed[counter] > 0]
            for flow, packets in zip(hit["flow"].tolist(), hit[counter].tolist(), strict=True):
                sums[flow] += packets
        return sums

    def lost(self) -> dict[int, int]:
        """Packets per flow that were lost between taps."""
        sums: dict[int, int] = defaultdict(int)
        for hop in self.hops:
            flows, packets = np.unique(hop.lost["flow"], return_counts=True)
            for flow, count in zip(flows.tolist(), packets.tolist(), strict=True):
                sums[flow] += count
        return sums

    def without(self, taps: set[int]) -> TapHops:
        """Without hops from or to these taps, and moves between them and others.

        Different samples at both ends are no loss, and neither are packets that a clock that was
        set puts before or after those of the other taps.
        """
        hops = [hop for hop in self.hops if not taps & {hop.from_tap, hop.to_tap}]
        missed = [part for part in self.missed if part.tap not in taps]
        ends = [self.visits[name] for name in ("tap", "first_next_tap", "next_tap")]
        visits = self.visits.copy()
        visits["moves"][np.isin(ends, list(taps)).any(axis=0)] = 0
        arrived = self.arrived[~np.isin(self.arrived["tap"], list(taps))]
        return replace(self, hops=hops, missed=missed, visits=visits, arrived=arrived)


def arrivals(edges: NDArray[Any]) -> NDArray[Any]:
    """ARRIVED records of EDGE records, without packets whose hop limit varies at one tap."""
    is_start = edges["from_tap"] == state.START
    is_steady = edges["limit_min"] == edges["limit_max"]
    is_steady &= is_start | (edges["drop_min"] == edges["drop_max"])
    is_arrival = (edges["flow"] >= 0) & (edges["to_tap"] < state.START) & is_steady
    edges, is_start = edges[is_arrival], is_start[is_arrival]
    limit = edges["limit_min"] - np.where(is_start, 0, edges["drop_min"])
    order = np.lexsort((edges["first_ns"], limit, edges["flow"]))
    edges, limit = edges[order], limit[order]
    differs = [np.diff(column) != 0 for column in (edges["flow"], limit, edges["to_tap"])]
    begins = np.flatnonzero(np.append(True, np.any(differs, axis=0))[: len(edges)])
    arrived = np.zeros(len(begins), ARRIVED)
    if len(begins):
        for name, column in (("flow", "flow"), ("tap", "to_tap"), ("first_ns", "first_ns")):
            arrived[name] = edges[column][begins]
        arrived["limit"] = limit[begins]
        arrived["packets"] = np.add.reduceat(edges["packets"], begins)
        arrived["last_ns"] = np.maximum.reduceat(edges["last_ns"], begins)
    return arrived


def _only_taps(flows: NDArray[Any], taps: NDArray[Any]) -> dict[int, int]:
    """The tap of each flow, where it is one; a flow and a tap per record."""
    taps_of: dict[int, set[int]] = defaultdict(set)
    for flow, tap in zip(flows.tolist(), taps.tolist(), strict=True):
        taps_of[flow].add(tap)
    return {flow: min(its) for flow, its in taps_of.items() if len(its) == 1}


def spread_times(begin: int, end: int, count: int) -> NDArray[np.int64]:
    """count times with equal gaps, the last one at end, as int64 ns. In whole numbers: as a float
    the last time of int64 is one too many."""
    gap = (end - begin) // max(count, 1)
    return np.int64(end) - np.arange(count - 1, -1, -1) * np.int64(gap if count > 1 else 0)
