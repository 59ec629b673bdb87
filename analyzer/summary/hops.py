"""Hops, capture losses and clocks as result records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.kernel import Floats, Ints, Records
from ..measures.hops import state
from ..measures.hops.hops import TapHop, TapHops
from ..measures.hops.measure import HopMeasure
from ..results.base import Quantiles
from ..results.hops import CaptureLoss, Hop, LostAt, TapClock
from ..statistics.histogram import HistogramPool

LISTED_FLOWS = 1_000
LISTED_FRAMES = 1_000
_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_STEP_NS = 100_000
"""A clock step changes the offset of two taps by at least this from one window to the next."""
_DRIFT_WINDOWS = 8
_QUEUED_NS = 20_000
"""A round trip this much above the minimum waits in a queue: its offset shows nothing."""


def hop_records(tap_hops: TapHops, measure: HopMeasure, names: Sequence[str]) -> list[Hop]:
    """One record per hop and direction, most packets first."""
    return [_hop(i, hop, tap_hops, measure, names) for i, hop in enumerate(tap_hops.hops)]


def _hop(
    number: int, hop: TapHop, tap_hops: TapHops, measure: HopMeasure, names: Sequence[str]
) -> Hop:
    total, lost = hop.total, hop.lost
    drop = None
    if total is not None and total["drop_min"] == total["drop_max"]:
        drop = int(total["drop_min"])
    delay = None if total is None else delays(measure.histograms, total)
    queueing = None
    if delay is not None:
        queueing = Quantiles(
            delay.count,
            0.0,
            delay.mean - delay.min,
            delay.p50 - delay.min,
            delay.p90 - delay.min,
            delay.p99 - delay.min,
            delay.p999 - delay.min,
            delay.max - delay.min,
        )
    flows = np.union1d(hop.passed["flow"], lost["flow"])

    def counted(name: str) -> int:
        return 0 if total is None else int(total[name])

    return Hop(
        id=number,
        from_tap=names[hop.from_tap],
        to_tap=names[hop.to_tap] if hop.to_tap >= 0 else None,
        device=tap_hops.devices.get((hop.from_tap, hop.to_tap)),
        expected_by=hop.expected_by if len(lost) else None,
        flows=len(flows),
        packets=hop.packets,
        wire_bytes=counted("wire_bytes") + int(lost["wire_bytes"].sum()),
        passed_packets=hop.passed_packets,
        lost_packets=len(lost),
        lost_percent=100 * len(lost) / hop.packets,
        lost_by_flow=_lost_by_flow(hop),
        lost_frames=_lost_frames(hop),
        first_lost_ns=int(lost["time"].min()) if len(lost) else None,
        last_lost_ns=int(lost["time"].max()) if len(lost) else None,
        ce_marked_packets=counted("marked"),
        reordered_packets=counted("late"),
        overtaken_by=None
        if total is None
        else measure.histograms.quantiles(int(total["hop"]), state.OVERTAKEN),
        duplicate_packets=counted("copies"),
        trimmed_packets=counted("trimmed"),
        dscp_changed_packets=counted("dscp_changed"),
        hop_limit_drop=drop,
        delay_ns=delay,
        queueing_ns=queueing,
    )


def _lost_frames(hop: TapHop) -> list[int]:
    known = hop.lost[hop.lost["frame"] > 0]
    first = known[np.argsort(known["time"], kind="stable")][:LISTED_FRAMES]
    frames: list[int] = first["frame"].tolist()
    return frames


def _lost_by_flow(hop: TapHop) -> list[LostAt]:
    flows, index, counts = np.unique(hop.lost["flow"], return_inverse=True, return_counts=True)
    passed = dict(zip(hop.passed["flow"].tolist(), hop.passed["packets"].tolist(), strict=True))
    losses = []
    for i in np.argsort(-counts, kind="stable")[:LISTED_FLOWS].tolist():
        flow, times = int(flows[i]), hop.lost["time"][index == i]
        lost = int(counts[i])
        losses.append(
            LostAt(flow, lost, lost + passed.get(flow, 0), int(times.min()), int(times.max()))
        )
    return losses


def delays(histograms: HistogramPool, edge: Records | Any) -> Quantiles | None:
    """The delays of a hop: two histograms, of delays above and below the first one."""
    hop, base = int(edge["hop"]), int(edge["delay_base"])
    above = [(b.low, b.high, b.count) for b in histograms.bins(hop, state.AHEAD)]
    below = [(1 - b.high, 1 - b.low, b.count) for b in reversed(histograms.bins(hop, state.BEHIND))]
    bins = below + above
    count = sum(n for _, _, n in bins)
    if not count:
        return None
    low, high = int(edge["delay_min"]), int(edge["delay_max"])

    def quantile(q: float) -> float:
        rank, passed = q * (count - 1), 0
        for start, stop, n in bins:
            if passed + n > rank:
                value = base + start + (rank - passed + 0.5) / n * (stop - 1 - start)
                return float(min(max(value, low), high))
            passed += n
        return float(high)

    total = sum(
        sign * int(histograms.arrays.stats[row, 1])
        for kind, sign in ((state.AHEAD, 1), (state.BEHIND, -1))
        if (row := int(histograms.arrays.row[hop, kind]) - 1) >= 0
    )
    p50, p90, p99, p999 = (quantile(q) for q in _QUANTILES)
    return Quantiles(count, low, base + total / count, p50, p90, p99, p999, high)


def capture_losses(tap_hops: TapHops, names: Sequence[str]) -> list[CaptureLoss]:
    """What each capture missed."""
    return [
        CaptureLoss(
            tap=names[missed.tap],
            packets=len(missed.flows),
            of_packets=len(missed.flows) + missed.passed,
            first_ns=int(missed.times.min()),
            last_ns=int(missed.times.max()),
            flows=np.unique(missed.flows)[:LISTED_FLOWS].tolist(),
        )
        for missed in tap_hops.missed
    ]


def clocks(tap_hops: TapHops, names: Sequence[str]) -> list[TapClock]:
    """The clocks of neighbouring taps with packets in both directions."""
    by_taps = {(hop.from_tap, hop.to_tap): hop for hop in tap_hops.hops if hop.total is not None}
    records = []
    for (near, far), there in by_taps.items():
        back = by_taps.get((far, near))
        if back is None or far < near:
            continue
        forth_ns, back_ns = int(there.total["delay_min"]), int(back.total["delay_min"])
        offsets, trips = _offsets(there, back)
        drift = _drift_ppm(offsets, trips, tap_hops.window_ns)
        begins = (_steps(offsets, trips) * tap_hops.window_ns + tap_hops.origin_ns).tolist()
        records.append(
            TapClock(
                tap=names[far],
                relative_to=names[near],
                offset_ns=(forth_ns - back_ns) / 2,
                uncertainty_ns=abs(forth_ns + back_ns) / 2,
                drift_ppm=drift,
                steps=len(begins),
                first_step_ns=begins[0] if begins else None,
                last_step_ns=begins[-1] if begins else None,
            )
        )
    return records


def _offsets(there: TapHop, back: TapHop) -> tuple[Floats, Floats]:
    """Offset and round trip per window with packets of both directions, from the least delays."""
    both = (there.windows[:, state.PACKETS_IN] > 0) & (back.windows[:, state.PACKETS_IN] > 0)
    forth, backward = (
        np.where(both, hop.windows[:, state.DELAY_LEAST], 0).astype(np.float64)
        for hop in (there, back)
    )
    unknown = np.where(both, 0.0, np.nan)
    return (forth - backward) / 2 + unknown, forth + backward + unknown


def _drift_ppm(offsets: Floats, trips: Floats, window_ns: int) -> float | None:
    """Slope of the offset over windows without a queue; None with too few of them."""
    least = np.nanmin(trips, initial=np.inf)
    at = np.flatnonzero(trips <= least + max(_QUEUED_NS, abs(least) / 2))
    if len(at) < _DRIFT_WINDOWS:
        return None
    return float(np.polyfit(at * float(window_ns), offsets[at], 1)[0] * 1e6)


def _steps(offsets: Floats, trips: Floats) -> Ints:
    """The windows after jumps of the offset that no queue explains.

    A queue changes the round trip too; one that empties while that of the other direction fills
    leaves it as it is, but the offset stays within half a round trip of what was measured. A clock
    that drifts is as far off after a pause as its usual slope says.
    """
    # Below 0: the clock moved inside the window.
    known = np.flatnonzero(~np.isnan(offsets) & (trips >= 0))
    offsets, trips = offsets[known], trips[known]
    change, jump, apart = np.abs(np.diff(trips)), np.diff(offsets), np.diff(known)
    calm = trips <= np.min(trips, initial=np.inf) + _QUEUED_NS
    calm = calm[1:] & calm[:-1]
    slope = np.median((jump / apart)[calm]) if calm.sum() >= _DRIFT_WINDOWS else 0.0
    jump = np.minimum(np.abs(jump), np.abs(jump - slope * apart))
    within = (trips[1:] + trips[:-1]) / 2
    return known[1:][(jump > np.maximum(_STEP_NS, within)) & (change < jump / 4)]
