"""What the captures of taps missed, and what their gaps hide of losses between taps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools, Ints
from ...wire.taps import Gap
from .hops import GRACE_NS, TapHop, TapHops, spread_times
from .measure import HopMeasure
from .state import START
from .vantage import MOST_DIRECT, Vantage, rows_of

Misses: TypeAlias = dict[int, list[tuple[NDArray[np.int32], NDArray[np.int64]]]]
"""By tap: flows and times of packets that its capture missed."""

_TIMES = np.iinfo(np.int64)


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
