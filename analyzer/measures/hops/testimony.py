"""What the taps can testify: when they saw, what their captures missed, what gaps hide of losses.

Captures of one fault are begun and ended at different times. What passed a tap while it did not
capture is unknown: it was neither lost there nor seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools, Ints
from ...wire.taps import Gap
from .hops import GRACE_NS, TapHop, TapHops, spread_times
from .measure import HopMeasure
from .state import END, LOGGED_MOVES, LONG_RUN, NEWEST, START, UNLOGGED
from .vantage import MOST_DIRECT, Onward, Vantage, device_between, rows_of

_TIMES = np.iinfo(np.int64)
_MOST_NS = 1 << 62

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
    _unclocked: AbstractSet[int] = frozenset()

    @classmethod
    def of(
        cls,
        measure: HopMeasure,
        taps: int,
        is_live: bool,
        unclocked: AbstractSet[int] = frozenset(),
    ) -> Testimony:
        """Of a concluded measure. is_live: the captures go on. unclocked: taps whose clock was set,
        so that no time to or from them is one of transit."""
        first, last = np.full(taps, _TIMES.max), np.full(taps, _TIMES.min)
        together = measure.edges[measure.edges["flow"] < 0]
        for near, first_ns, last_ns in rows_of(together, "from_tap", "first_ns", "last_ns"):
            if near != START:
                first[near], last[near] = min(first[near], first_ns), max(last[near], last_ns)
        if is_live:
            last[last > _TIMES.min] = measure.state.clock[NEWEST]
        between = (together["from_tap"] != START) & (together["to_tap"] != END)
        keys = rows_of(together[between], "from_tap", "to_tap")
        return cls(first, last, dict(zip(keys, together[between], strict=True)), unclocked)

    @cached_property
    def longest_ns(self) -> int:
        """The longest time from tap to tap, in the times of their clocks."""
        delays = [
            abs(int(hop[name]))
            for taps, hop in self._hops.items()
            if self._unclocked.isdisjoint(taps)
            for name in ("delay_min", "delay_max")
        ]
        return max([GRACE_NS, *delays])

    def sees_after(self, near: int, far: int, times: Ints) -> Bools:
        """Which packets, seen at `near` at these times, `far` must see next if none is lost.

        At the end packets may be in flight, unless one that entered the hop later passed.
        """
        transit = self._transit(near, far)
        early, late = transit.least - transit.spare, transit.most + transit.spare
        sees: Bools = plus(times, early) >= self.first_ns[far]
        is_in_time = plus(times, late) <= self.last_ns[far]
        hop = self._hops.get((near, far))
        if hop is not None:
            is_in_time |= times < hop["last_ns"]
        return sees & is_in_time

    def sees_at_end(self, path: Sequence[int], times: Ints) -> Bools:
        """Which packets, seen at the first tap of a path at these times, the last one must see if
        none is lost: the taps between need not capture."""
        transits = [self._transit(*hop) for hop in pairwise(path)]
        early = sum(transit.least - transit.spare for transit in transits)
        late = sum(transit.most + transit.spare for transit in transits)
        sees: Bools = plus(times, early) >= self.first_ns[path[-1]]
        return sees & (plus(times, late) <= self.last_ns[path[-1]])

    def saw_before(self, near: int, far: int, times: Ints) -> Bools:
        """Which packets, seen at `far` at these times, `near` must have seen if they passed it.

        What was queued when the captures began waited longer than any packet that both taps saw.
        """
        transit = self._transit(near, far, 2 * self.longest_ns)
        early, late = transit.least - transit.spare, transit.most + transit.spare
        saw: Bools = plus(times, -late) >= self.first_ns[near]
        return saw & (plus(times, -early) <= self.last_ns[near])

    def _transit(self, near: int, far: int, unknown_ns: int = GRACE_NS) -> _Transit:
        """unknown_ns: of a hop that no packet passed."""
        hop = self._hops.get((near, far))
        if hop is None:
            return _Transit(0, 0, unknown_ns)
        least, most = int(hop["delay_min"]), int(hop["delay_max"])
        return _Transit(least, most, max(most - least, most, 0))


def plus(times: Ints, ns: int) -> Ints:
    """Times moved, within the range of int64; wild times differ by more."""
    ns = min(max(ns, -_MOST_NS), _MOST_NS)
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
    skipped: set[tuple[int, int]]
    """Flows and taps after which packets skipped taps that should have seen them."""
    instead: dict[tuple[int, int], dict[int, Onward]]
    """By flow and tap: the taps further on where packets were seen next while the next tap did not
    capture."""


def testified(measure: HopMeasure, testimony: Testimony, names: list[str]) -> Testified:
    """The counts of a concluded measure that the taps can testify. names: of all taps."""
    edges, moments = measure.edges.copy(), _moments_by_edge(measure)
    is_full = measure.state.used[UNLOGGED] > 0
    stays = np.ones(len(edges), np.bool_)
    skipped: set[tuple[int, int]] = set()
    instead: dict[tuple[int, int], dict[int, Onward]] = defaultdict(dict)
    visits = VisitsByKey(measure.visits)
    for skipping, usual in _skipping_edges(edges):
        number, near, far = skipping
        edge, logged = edges[number], moments.get(number, measure.ends[:0])
        unlogged = 0 if is_full else int(edge["packets"]) - len(logged)
        begin = int(edge["first_ns"])
        visit = measure.visits[visits.number(int(edge["flow"]), near)]
        until = min(int(edge["last_ns"]), int(visit["early_ns"]))
        times = np.append(spread_times(begin, max(until, begin), unlogged), logged["time"])
        is_expected = np.ones(len(times), np.bool_)
        for other in usual:
            if near == START:
                is_expected &= testimony.saw_before(int(edges[other]["to_tap"]), far, times)
            else:
                is_expected &= testimony.sees_after(near, int(edges[other]["to_tap"]), times)
        if is_expected.all() and not is_full:
            skipped.add((int(edge["flow"]), near))
            continue
        if near != START:
            onward = Onward(int(edge["packets"]), int(edge["first_ns"]), int(edge["last_ns"]))
            instead[int(edge["flow"]), near][far] = onward
        stays[number] = is_expected.any()
        if stays[number]:
            skipped.add((int(edge["flow"]), near))
            times = times[is_expected]
            edge["packets"], edge["first_ns"], edge["last_ns"] = len(times), min(times), max(times)
        moments[number] = logged[is_expected[unlogged:]]
    return Testified(
        edges[stays],
        np.flatnonzero(stays).tolist(),
        moments,
        _with_true_moves(measure, testimony, names),
        skipped,
        instead,
    )


class VisitsByKey:
    """Where the VISIT record of a flow and a tap is."""

    def __init__(self, visits: NDArray[Any]) -> None:
        keys = _keys(visits, "tap")
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]

    def number(self, flow: int, tap: int) -> int:
        """The number of the record of a flow and a tap that it visited."""
        return int(self._order[np.searchsorted(self._sorted, (flow << 16) | tap)])


def _keys(records: NDArray[Any], tap: str) -> Ints:
    """One number per flow and tap."""
    keys: Ints = (records["flow"].astype(np.int64) << 16) | records[tap]
    return keys


def _skipping_edges(
    edges: NDArray[Any],
) -> Iterable[tuple[tuple[int, int, int], list[int]]]:
    """The (number, tap, next tap) of each edge whose packets skipped a tap that others of their
    flow passed: their hop limit dropped by more; and the numbers of the edges of these others."""
    numbers = np.flatnonzero((edges["flow"] >= 0) & (edges["to_tap"] != END))
    onward = edges[numbers]
    is_start = onward["from_tap"] == START
    drops = np.where(is_start, 255 - onward["limit_max"], onward["drop_min"])
    _, group = np.unique(_keys(onward, "from_tap"), return_inverse=True)
    least = np.full(int(group.max(initial=-1)) + 1, _TIMES.max)
    np.minimum.at(least, group, drops)
    is_skipping = drops > least[group]
    with_skips = np.isin(group, group[is_skipping])
    usual: dict[int, list[int]] = defaultdict(list)
    for at in np.flatnonzero(with_skips & ~is_skipping).tolist():
        usual[int(group[at])].append(int(numbers[at]))
    for at in np.flatnonzero(is_skipping).tolist():
        near, far = int(onward["from_tap"][at]), int(onward["to_tap"][at])
        yield (int(numbers[at]), near, far), usual[int(group[at])]


def _with_true_moves(measure: HopMeasure, testimony: Testimony, names: list[str]) -> NDArray[Any]:
    """VISIT records whose moves are those of flows, from one link of a device to another.

    Next taps after equally many routers are on parallel links: a packet seen at one did not pass
    the other. Without a router one of them may follow the other, and both must have captured.
    Flows with more moves than are logged are sprayed; they stay as they are.
    """
    visits, moves = measure.visits.copy(), measure.moves
    places = VisitsByKey(visits)
    true: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    columns = ("flow", "tap", "old_tap", "new_tap", "left_ns", "time")
    for flow, tap, old, new, left_ns, time in rows_of(moves, *columns):
        if tap == START:
            is_seen = True
        elif visits["drop"][places.number(flow, tap)] > 0:
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


Misses: TypeAlias = dict[int, list[tuple[NDArray[np.int32], NDArray[np.int64]]]]
"""By tap: flows and times of packets that its capture missed."""


def add_skipped_packets(
    misses: Misses,
    vantage: Vantage,
    moments: Mapping[int, NDArray[Any]],
    start_numbers: Sequence[int],
    unclocked: AbstractSet[int],
) -> None:
    """Add packets that a capture missed in the middle of their path or at its beginning.

    moments: MOMENT records by number of an edge. start_numbers: of the edges `vantage.starts`.
    """
    drops = {hop: int(edge["drop_min"]) for hop, edge in vantage.hops.items()}
    after: dict[int, set[int]] = defaultdict(set)
    for near, far in drops:
        after[near].add(far)
    columns = ("flow", "from_tap", "to_tap", "drop_max", "packets", "first_ns", "last_ns")
    for flow, near, far, drop, direct, first_ns, last_ns in rows_of(vantage.passes, *columns):
        between = [
            tap
            for tap in after[near]
            if tap != far
            and far in after[tap]
            and drops[near, tap] + drops[tap, far] == drop
            and drops[near, tap] < drop
        ]
        if len(between) != 1:
            continue
        onward = vantage.next_of[flow, near]
        if direct > MOST_DIRECT * sum(passed.packets for passed in onward.values()):
            continue
        # Before and after, or where it is sprayed, the flow has other paths than by this tap.
        meanwhile = [
            tap
            for tap, passed in onward.items()
            if tap != far and passed.first_ns <= last_ns and passed.last_ns >= first_ns
        ]
        if meanwhile != between:
            continue
        times = np.append(np.int64(first_ns), spread_times(first_ns, last_ns, direct - 1))
        misses[between[0]].append((np.full(direct, flow, np.int32), times))
    started: dict[int, int] = defaultdict(int)
    for flow, packets in rows_of(vantage.starts, "flow", "packets"):
        started[flow] += packets
    starts = rows_of(vantage.starts, "flow", "to_tap", "limit_max")
    for number, (flow, tap, limit) in zip(start_numbers, starts, strict=True):
        main = vantage.main_starts[flow]
        if limit >= int(main["limit_min"]) or tap in unclocked:
            continue  # the same tap, or a parallel one
        is_minor = int(main["packets"]) < (1 - MOST_DIRECT) * started[flow]
        if is_minor or (flow, tap) not in vantage.reached or number not in moments:
            continue  # it has several paths, and not all of them have a tap
        # Before and after, the flow took another path, or the capture of the tap did not run.
        times = moments[number]["time"]
        times = times[(times >= main["first_ns"]) & (times <= main["last_ns"])]
        if len(times):
            misses[int(main["to_tap"])].append((np.full(len(times), flow, np.int32), times))


def packets_at_taps(measure: HopMeasure, taps: int) -> NDArray[np.int64]:
    """Packets at each tap."""
    packets = np.zeros(taps, np.int64)
    visits = measure.visits[measure.visits["tap"] < START]
    np.add.at(packets, visits["tap"].astype(np.int64), visits["packets"])
    for tap, left in measure.left_at.items():
        packets[tap] += left
    return packets


def without_hidden(
    hops: TapHops, gaps: Mapping[int, Sequence[Gap]], first_ns: Ints, last_ns: Ints
) -> TapHops:
    """Without the lost packets that a tap with gaps may have seen, and without hops from or to
    these taps and moves between them and others.

    `TapHops.hidden` counts those packets, and `TapHops.unknown` has them by flow.

    gaps: by tap. first_ns, last_ns: of each flow, at all taps. Packets that would show that nothing
    was lost, or not everything, are in gaps, or on the hops that are left out.
    """
    hidden: Counter[int] = Counter()
    kept = []
    seen = hops.without(set(gaps))
    for hop in seen.hops:
        is_hidden = _may_be_hidden(hops, hop, gaps, first_ns, last_ns)
        hidden.update(hop.lost["flow"][is_hidden].tolist())
        if hop.total is not None or not is_hidden.all():
            kept.append(replace(hop, lost=hop.lost[~is_hidden]))
    return replace(
        seen,
        visits=_without_moves(hops, seen.visits, gaps),
        hops=sorted(kept, key=lambda hop: -hop.packets),
        hidden=hidden.total(),
        unknown=dict(Counter(hops.unknown) + hidden),
    )


def _without_moves(hops: TapHops, visits: NDArray[Any], gaps: Collection[int]) -> NDArray[Any]:
    """VISIT records without moves where a flow passed to a tap with gaps: it seems to move to the
    tap after it, and back."""
    visits = visits.copy()
    for hop in hops.hops:
        if hop.to_tap in gaps:
            is_before = visits["tap"] == hop.from_tap
            visits["moves"][is_before & np.isin(visits["flow"], hop.passed["flow"])] = 0
    return visits


def _may_be_hidden(
    hops: TapHops, hop: TapHop, gaps: Mapping[int, Sequence[Gap]], first_ns: Ints, last_ns: Ints
) -> Bools:
    """Which of the lost packets of a hop may have passed to a tap with gaps: all that are expected
    nowhere or whose flow went there, if packets went from the first tap to one with gaps; those
    during a gap if their flow never passed the hop; those of flows that live only during a gap,
    unless the tap with the gap follows other taps than the first one."""
    beside = [
        other.passed["flow"]
        for other in hops.hops
        if other.from_tap == hop.from_tap and other.to_tap in gaps
    ]
    if beside and hop.to_tap < 0:
        return np.ones(len(hop.lost), np.bool_)
    flows, time = hop.lost["flow"], hop.lost["time"]
    is_hidden: Bools = np.zeros(len(hop.lost), np.bool_)
    lives_in_gap: Bools = is_hidden.copy()
    margin_ns = _longest_delay_ns(hops.hops)
    for tap, of_tap in gaps.items():
        before = {h.from_tap for h in hops.hops if h.to_tap == tap and h.total is not None}
        for gap in of_tap:
            begin = _TIMES.min if gap.from_ns is None else gap.from_ns - margin_ns
            end = _TIMES.max if gap.until_ns is None else gap.until_ns + margin_ns
            is_hidden |= (time >= begin) & (time <= end)
            if not before or hop.from_tap in before:
                lives_in_gap |= (first_ns[flows] >= begin) & (last_ns[flows] <= end)
    is_hidden &= ~np.isin(flows, hop.passed["flow"])
    is_hidden |= lives_in_gap
    for went_there in beside:
        is_hidden |= np.isin(flows, went_there)
    return is_hidden


def _longest_delay_ns(hops: Sequence[TapHop]) -> int:
    """Between two taps, in the times of their clocks: what passes one at the edge of a gap passes
    the other so much earlier or later."""
    passed = [hop.total for hop in hops if hop.total is not None]
    delays = [abs(int(total[name])) for total in passed for name in ("delay_min", "delay_max")]
    return max([GRACE_NS, *delays])
