"""What gaps in the captures of taps hide of losses between taps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools, Ints
from ...wire.taps import Gap
from .ways import GRACE_NS, Way, Ways

_TIMES = np.iinfo(np.int64)


def without_hidden(
    ways: Ways, gaps: Mapping[int, Sequence[Gap]], first_ns: Ints, last_ns: Ints
) -> Ways:
    """Without the lost packets that a tap with gaps may have seen, and without hops from or to
    these taps and moves between them and others.

    `Ways.hidden` counts those packets, and `Ways.unknown` has them by flow.

    gaps: by tap. first_ns, last_ns: of each flow, at all taps. Packets that would show that nothing
    was lost, or not everything, are in gaps, or on the hops that are left out.
    """
    hidden: Counter[int] = Counter()
    kept = []
    seen = ways.without(set(gaps))
    for way in seen.hops:
        unknown = _hidden(ways, way, gaps, first_ns, last_ns)
        hidden.update(way.lost["flow"][unknown].tolist())
        if way.whole is not None or not unknown.all():
            kept.append(replace(way, lost=way.lost[~unknown]))
    return replace(
        seen,
        visits=_placed(ways, seen.visits, gaps),
        hops=sorted(kept, key=lambda way: -way.packets),
        hidden=hidden.total(),
        unknown=dict(Counter(ways.unknown) + hidden),
    )


def _placed(ways: Ways, visits: NDArray[Any], gaps: Collection[int]) -> NDArray[Any]:
    """VISIT records without moves where a flow passed to a tap with gaps: it seems to move to the
    tap after it, and back."""
    visits = visits.copy()
    for hop in ways.hops:
        if hop.to_tap in gaps:
            here = (visits["tap"] == hop.from_tap) & np.isin(visits["flow"], hop.passed["flow"])
            visits["moves"][here] = 0
    return visits


def _hidden(
    ways: Ways, way: Way, gaps: Mapping[int, Sequence[Gap]], first_ns: Ints, last_ns: Ints
) -> Bools:
    """Which of the lost packets of a hop may have passed to a tap with gaps: all that are expected
    nowhere or whose flow went there, if packets went from the first tap to one with gaps; those
    during a gap if their flow never passed the hop; those of flows that live only during a gap,
    unless the tap with the gap follows other taps than the first one."""
    beside = [
        hop.passed["flow"]
        for hop in ways.hops
        if hop.from_tap == way.from_tap and hop.to_tap in gaps
    ]
    if beside and way.to_tap < 0:
        return np.ones(len(way.lost), np.bool_)
    flows, time = way.lost["flow"], way.lost["time"]
    hidden: Bools = np.zeros(len(way.lost), np.bool_)
    covered: Bools = hidden.copy()
    margin_ns = _longest_delay_ns(ways.hops)
    for tap, some in gaps.items():
        before = {hop.from_tap for hop in ways.hops if hop.to_tap == tap and hop.whole is not None}
        for gap in some:
            begin = _TIMES.min if gap.from_ns is None else gap.from_ns - margin_ns
            end = _TIMES.max if gap.until_ns is None else gap.until_ns + margin_ns
            hidden |= (time >= begin) & (time <= end)
            if not before or way.from_tap in before:
                covered |= (first_ns[flows] >= begin) & (last_ns[flows] <= end)
    hidden &= ~np.isin(flows, way.passed["flow"])
    hidden |= covered
    for others in beside:
        hidden |= np.isin(flows, others)
    return hidden


def _longest_delay_ns(hops: Sequence[Way]) -> int:
    """Between two taps, in the times of their clocks: what passes one at the edge of a gap passes
    the other so much earlier or later."""
    passed = [hop.whole for hop in hops if hop.whole is not None]
    delays = [abs(int(whole[name])) for whole in passed for name in ("delay_min", "delay_max")]
    return max([GRACE_NS, *delays])
