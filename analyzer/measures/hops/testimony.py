"""When each tap testifies: from its first to its last packet, less the time of transit.

Captures of one fault are begun and ended at different times. What passed a tap while it did not
capture is unknown: it was neither lost there nor seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools, Ints
from .hops import GRACE_NS, spread_times
from .measure import HopMeasure
from .state import END, LOGGED_MOVES, LONG_RUN, NEWEST, START, UNLOGGED
from .vantage import Onward, device_between, rows_of

_TIMES = np.iinfo(np.int64)

Moments: TypeAlias = Mapping[int, NDArray[Any]]
"""MOMENT records by number of an edge."""


class _Transit(NamedTuple):
    """From tap to tap, in the times of their clocks, ns."""

    least: int
    most: int
    spare: int
    """By so much more or less than these delays a packet may take."""


@dataclass
class Testimony:
    """First and last packet of every tap, and the time from tap to tap."""

    first_ns: Ints
    last_ns: Ints
    _hops: Mapping[tuple[int, int], Any] = field(default_factory=dict)
    """EDGE of all flows together, by tap and next tap."""

    @classmethod
    def of(cls, measure: HopMeasure, taps: int, is_live: bool) -> Testimony:
        """Of a concluded measure. is_live: the captures go on."""
        first, last = np.full(taps, _TIMES.max), np.full(taps, _TIMES.min)
        together = measure.edges[measure.edges["flow"] < 0]
        for near, first_ns, last_ns in rows_of(together, "from_tap", "first_ns", "last_ns"):
            if near != START:
                first[near], last[near] = min(first[near], first_ns), max(last[near], last_ns)
        if is_live:
            last[last > _TIMES.min] = measure.state.clock[NEWEST]
        between = (together["from_tap"] != START) & (together["to_tap"] != END)
        keys = rows_of(together[between], "from_tap", "to_tap")
        return cls(first, last, dict(zip(keys, together[between], strict=True)))

    @cached_property
    def longest_ns(self) -> int:
        """The longest time from tap to tap, in the times of their clocks."""
        delays = [
            abs(int(hop[name]))
            for hop in self._hops.values()
            for name in ("delay_min", "delay_max")
        ]
        return max([GRACE_NS, *delays])

    def sees_after(self, near: int, far: int, times: Ints) -> Bools:
        """Which packets, seen at `near` at these times, `far` must see next if none is lost.

        At the end packets may be in flight, unless one that entered the hop later passed.
        """
        transit = self._transit(near, far)
        early, late = transit.least - transit.spare, transit.most + transit.spare
        sees: Bools = _plus(times, early) >= self.first_ns[far]
        is_in_time = _plus(times, late) <= self.last_ns[far]
        hop = self._hops.get((near, far))
        if hop is not None:
            is_in_time |= times < hop["last_ns"]
        return sees & is_in_time

    def saw_before(self, near: int, far: int, times: Ints) -> Bools:
        """Which packets, seen at `far` at these times, `near` must have seen if they passed it."""
        transit = self._transit(near, far, self.longest_ns)
        early, late = transit.least - transit.spare, transit.most + transit.spare
        saw: Bools = _plus(times, -late) >= self.first_ns[near]
        return saw & (_plus(times, -early) <= self.last_ns[near])

    def _transit(self, near: int, far: int, unknown_ns: int = GRACE_NS) -> _Transit:
        """unknown_ns: of a hop that no packet passed."""
        hop = self._hops.get((near, far))
        if hop is None:
            return _Transit(0, 0, unknown_ns)
        least, most = int(hop["delay_min"]), int(hop["delay_max"])
        return _Transit(least, most, max(most - least, most, 0))


def _plus(times: Ints, ns: int) -> Ints:
    """Times moved, within the range of int64."""
    low, high = (_TIMES.min - ns, _TIMES.max) if ns < 0 else (_TIMES.min, _TIMES.max - ns)
    moved: Ints = np.clip(times, low, high) + np.int64(ns)
    return moved


@dataclass(slots=True)
class Testified:
    """The counts of a measure without what a tap did not see because it did not capture."""

    edges: NDArray[Any]
    """EDGE records; START and skipping edges count what the taps that they skip should have seen.
    Edges without such a packet are left out."""
    numbers: list[int]
    """The number in the measure of each of them."""
    moments: dict[int, NDArray[Any]]
    """MOMENT records by number of an edge; of skipping edges and START only what is counted."""
    visits: NDArray[Any]
    """VISIT records with the moves of flows from one link to another."""
    instead: dict[tuple[int, int], dict[int, Onward]]
    """By flow and tap: the taps further on where packets were seen next while the next tap did not
    capture."""


def testified(measure: HopMeasure, testimony: Testimony, names: list[str]) -> Testified:
    """The counts of a concluded measure that the taps can testify. names: of all taps."""
    edges, moments = measure.edges.copy(), _moments_by_edge(measure)
    is_full = len(measure.ends) and measure.state.used[UNLOGGED] > 0
    stays = np.ones(len(edges), np.bool_)
    instead: dict[tuple[int, int], dict[int, Onward]] = defaultdict(dict)
    visits = measure.visits
    early_ns = dict(zip(rows_of(visits, "flow", "tap"), visits["early_ns"].tolist(), strict=True))
    for skipping, usual in _skipping_edges(edges):
        number, near, far = skipping
        edge, logged = edges[number], moments.get(number, measure.ends[:0])
        unlogged = 0 if is_full else int(edge["packets"]) - len(logged)
        begin = int(edge["first_ns"])
        until = min(int(edge["last_ns"]), early_ns[int(edge["flow"]), near])
        times = np.append(spread_times(begin, max(until, begin), unlogged), logged["time"])
        is_expected = np.ones(len(times), np.bool_)
        for other in usual:
            if near == START:
                is_expected &= testimony.saw_before(int(edges[other]["to_tap"]), far, times)
            else:
                is_expected &= testimony.sees_after(near, int(edges[other]["to_tap"]), times)
        if near != START and not is_expected.all():
            onward = Onward(int(edge["packets"]), int(edge["first_ns"]), int(edge["last_ns"]))
            instead[int(edge["flow"]), near][far] = onward
        if is_expected.all():
            continue
        stays[number] = is_expected.any()
        if stays[number]:
            times = times[is_expected]
            edge["packets"], edge["first_ns"], edge["last_ns"] = len(times), min(times), max(times)
        moments[number] = logged[is_expected[unlogged:]]
    return Testified(
        edges[stays],
        np.flatnonzero(stays).tolist(),
        moments,
        _with_true_moves(measure, testimony, names),
        instead,
    )


def _skipping_edges(
    edges: NDArray[Any],
) -> Iterable[tuple[tuple[int, int, int], list[int]]]:
    """The (number, tap, next tap) of each edge whose packets skipped a tap that others of their
    flow passed: their hop limit dropped by more; and the numbers of the edges of these others."""
    of_tap: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    columns = ("flow", "from_tap", "to_tap", "drop_min", "limit_max")
    for number, (flow, near, far, drop, limit) in enumerate(rows_of(edges, *columns)):
        if flow >= 0 and far != END:
            of_tap[flow, near].append((255 - limit if near == START else drop, number, far))
    for (_, near), of_flow in of_tap.items():
        least = min(of_flow)[0]
        usual = [number for drop, number, _ in of_flow if drop == least]
        for drop, number, far in of_flow:
            if drop > least:
                yield (number, near, far), usual


def _with_true_moves(measure: HopMeasure, testimony: Testimony, names: list[str]) -> NDArray[Any]:
    """VISIT records whose moves are those of flows, from one link of a device to another.

    Next taps after equally many routers are on parallel links: a packet seen at one did not pass
    the other. Without a router one of them may follow the other, and both must have captured.
    Flows with more moves than are logged are sprayed; they stay as they are.
    """
    visits, moves = measure.visits.copy(), measure.moves
    drops = dict(zip(rows_of(visits, "flow", "tap"), visits["drop"].tolist(), strict=True))
    true: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    columns = ("flow", "tap", "old_tap", "new_tap", "left_ns", "time")
    for flow, tap, old, new, left_ns, time in rows_of(moves, *columns):
        if tap == START:
            is_seen = True
        elif drops[flow, tap] > 0:
            devices = {device_between(names[tap], names[other]) for other in (old, new)}
            is_seen = len(devices) == 1
        else:
            is_seen = bool(
                testimony.sees_after(tap, old, np.array([time]))[0]
                and testimony.sees_after(tap, new, np.array([left_ns]))[0]
            )
        if is_seen:
            true[flow, tap].append((old, new, time))
    for i in np.flatnonzero((visits["moves"] > 0) & (visits["moves"] <= LOGGED_MOVES)).tolist():
        seen = true.get((int(visits["flow"][i]), int(visits["tap"][i])), [])
        visits["moves"][i] = len(seen)
        if seen:
            visits["first_next_tap"][i], visits["next_tap"][i] = seen[0][0], seen[-1][1]
            visits["first_move_ns"][i], visits["last_move_ns"][i] = seen[0][2], seen[-1][2]
    return visits


def count_rows(visit: Any, numbers: Ints, ended_last: bool) -> None:
    """Count the rows of transmissions that ended at a tap anew, of a VISIT record.

    numbers: of those that count, in their rows (`run` of MOMENT). ended_last: whether the latest
    transmission is one of them.
    """
    begins = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)
    lengths = np.diff(begins, append=len(numbers))
    long = lengths[lengths >= LONG_RUN]
    visit["long_runs"], visit["in_long_runs"] = len(long), long.sum()
    visit["run"] = lengths[-1] if ended_last and len(lengths) else 0


def _moments_by_edge(measure: HopMeasure) -> dict[int, NDArray[Any]]:
    ends = measure.ends
    order = np.argsort(ends["edge"], kind="stable")
    numbers, begin = np.unique(ends["edge"][order], return_index=True)
    parts = np.split(order, begin)[1:]  # no part without ends
    return {int(number): ends[part] for number, part in zip(numbers, parts, strict=True)}
