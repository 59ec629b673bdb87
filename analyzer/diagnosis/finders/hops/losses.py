"""Loss on a hop: random, of some flows, of everything for a while, or above a rate."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....measures.hops import state
from ....measures.troubles import JUMPED, RECOVERED_LOSS
from ....results.diagnosis import Confidence, Evidence, Finding, Kind
from ....results.flow import Flow
from ...case import Case
from ...finding import MOST_EVIDENCE, finding
from ...known import CLOCKS_NS, OVERFLOWS, Known
from ...words import counted, packets_of, rate
from ..lost_before import lost_before
from .groups import HopGroup
from .ports import losing_groups, of_ports
from .selective import CHANCE, dscp_selection, seldom, selection, unlikely

MOST_RUNS = 2
TOTAL_PACKETS = 3
"""Lost packets in a row, and no passed packet between them, from which a flow is swallowed."""
QUEUE_NS = 500_000
"""A queue this long, ten times the usual delay, while packets are lost: the queue overflows."""
QUEUE_FACTOR = 10
LONG_QUEUE_NS = 20_000_000
"""A queue this long while packets are lost overflows, also where it drops all packets of a flow."""
INCAST_SOURCES = 3
NEAR_TIME = 0.9
"""Share of the time of losses before the tap after an overflow that is also the time of that."""
MOVED_WITHIN_NS = 2_000_000_000
"""Flows that leave a dead link this soon after its last loss do so because of it."""
LENGTH_FLOWS = 2
"""Swallowed flows, and flows that pass, from which their length can be the rule."""
LENGTH_PACKETS = 10
LIMITED_WINDOWS = 8
"""Windows with loss from which a constant output shows a rate limit without a queue."""


class _Cause(NamedTuple):
    kind: Kind
    says: str
    next_step: str
    details: dict[str, str | int | float]


def hop_losses(case: Case, _: Known) -> Iterator[Finding]:
    """One finding per device and direction that loses packets."""
    ports = [group.hops for group in of_ports(case).values()]
    for group in losing_groups(case):
        if group.hops in ports:
            continue
        lost = group.lost()
        near = _lost_before(case, group, lost)
        cause = _cause(case, group, lost, near)
        flows, counts = np.unique(lost["flow"], return_counts=True)
        passed = group.passed()
        mine = np.isin(passed["flow"], flows) if cause.kind == "blackhole" else slice(None)
        of_packets = len(lost) + int(passed["packets"][mine].sum())
        hits = dict(zip(flows.tolist(), counts.tolist(), strict=True))
        if cause.kind in OVERFLOWS:
            hits |= near
            of_packets += _packets(case, near)
        span = (int(lost["time"][0]), int(lost["time"][-1]))
        uncertain_ns = 0
        if cause.kind in OVERFLOWS:  # from the first queue on, which begins inside a window
            begin, end = _overflow(case, group, lost)
            span = (min(span[0], begin + group.ways.window_ns), end)
            uncertain_ns = span[0] - begin
        yield finding(
            case,
            cause.kind,
            group.place(case),
            of_packets,
            cause.says + _by_fabric(group),
            cause.next_step,
            hits=hits,
            span=span,
            confidence=_confidence(case, group),
            evidence=loss_evidence(case, group),
            uncertain_ns=uncertain_ns,
            details=cause.details,
        )


def _lost_before(case: Case, group: HopGroup, lost: NDArray[Any]) -> dict[int, int]:
    """Packets, by flow, that are lost before the tap after these hops, which is the only one that
    sees the flow: their way to the same receiver has no other tap. They are lost at the time of a
    queue at these hops; others are lost elsewhere."""
    if group.to_tap is None:
        return {}
    tap = case.registry.tap_names[group.to_tap]
    receivers = {case.flows[f].dst for f in lost["flow"].tolist()}
    span = _overflow(case, group, lost)
    near = [
        flow
        for flow in case.flows
        if list(flow.taps) == [tap] and flow.dst in receivers and _mostly_in(span, case, flow)
    ]
    return {flow.id: packets for flow in near if (packets := lost_before(case, flow))}


def _mostly_in(span: tuple[int, int], case: Case, flow: Flow) -> bool:
    """Whether the time from the first to the last loss of the flow is inside, but for a tenth.

    Gaps date a loss; without them the retransmissions do, up to a timeout later.
    """
    of = case.measuring.troubles.of
    seen = of(flow.id, JUMPED) or of(flow.id, RECOVERED_LOSS)
    if seen is None:
        return False
    begin, end = max(span[0] - CLOCKS_NS, seen.first_ns), min(span[1] + CLOCKS_NS, seen.last_ns)
    return begin <= end and end - begin >= NEAR_TIME * (seen.last_ns - seen.first_ns)


def _packets(case: Case, lost: Mapping[int, int]) -> int:
    """Packets of these flows, with the lost ones."""
    flows = [case.flows[f] for f in lost]
    return sum(lost.values()) + sum(f.data_packets for f in flows)


def _overflow(case: Case, group: HopGroup, lost: NDArray[Any]) -> tuple[int, int]:
    """First and last loss, or time of the queue, if that is earlier or later."""
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    begin, end = group.queued(max(QUEUE_NS, QUEUE_FACTOR * _usual_delay(group)))
    return max(min(first, begin), case.first_ns), min(max(last, end), case.last_ns)


def _by_fabric(group: HopGroup) -> str:
    """The evidence for the next tap, where only the fabric file shows it."""
    told = any(hop.expected_by == "fabric" for hop in group.hops)
    return " (next tap by the fabric file)" if told else ""


def _confidence(case: Case, group: HopGroup) -> Confidence:
    names = case.registry.tap_names
    after = {names[hop.to_tap] for hop in group.hops if hop.to_tap < len(names)}
    if case.dropping and (not after or after & case.dropping):
        return "possible"
    known = all(hop.expected_by in ("flow", "destination", "host") for hop in group.hops)
    return "proven" if known else "likely"


def loss_evidence(case: Case, group: HopGroup) -> list[Evidence]:
    """The first frames that were lost, at the tap before the fault."""
    names = case.registry.tap_names
    found = []
    for hop in group.hops:
        known = hop.lost[hop.lost["frame"] > 0][:MOST_EVIDENCE]
        found += [
            Evidence(names[hop.from_tap], int(lost["frame"]), int(lost["time"]), int(lost["flow"]))
            for lost in known
        ]
    return found


def _cause(case: Case, group: HopGroup, lost: NDArray[Any], near: Mapping[int, int]) -> _Cause:
    """What kind of loss this is, in the order from the most to the least specific.

    near: packets that the same egress lost if it overflows, by flow.
    """
    name, way = group.name(), group.way()
    share = packets_of(len(lost), group.packets)
    check = f"check {name} and its links"
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    if len(lost) >= TOTAL_PACKETS and last > first and not _passed_between(group, first, last):
        everything = f"everything{way} ({counted(len(lost), 'packet')})"
        if _left(case, group, last):
            says = f"{name} loses {everything} until the flows are rerouted"
            return _Cause("link-down", says, f"{check}: a link went down", {})
        if _passed_between(group, last + 1, case.last_ns + 1):
            return _Cause("outage", f"{name} loses {everything} for a while", check, {})
        return _Cause("blackhole", f"{name} loses {everything}", f"drain {name}, {check}", {})
    outages = _outages(group, lost)
    if outages > 1:
        says = f"{name} loses everything{way} for a while, {outages} times ({len(lost):,} packets)"
        return _Cause(
            "outage", says, f"{check}: a link that fails and recovers", {"outages": outages}
        )
    limit, queued_ns = _rate_limit(group)
    overflows = limit is not None and queued_ns >= LONG_QUEUE_NS
    swallowed = set() if overflows else _swallowed(group, lost)
    of_swallowed = np.isin(lost["flow"], list(swallowed))
    alone = len(lost) - np.count_nonzero(of_swallowed)
    if swallowed and (alone < 0.1 * len(lost) or alone < TOTAL_PACKETS <= len(lost) / 5):
        flows = counted(len(swallowed), "flow")
        others = _pass_meanwhile(group, lost) - swallowed
        size = _by_size(group, lost, others)
        if size is not None and unlikely(swallowed, others, 1, LENGTH_FLOWS):
            return _too_long(group, lost, size)
        chosen = dscp_selection(case, swallowed, others) or selection(case, swallowed, others)
        if chosen is not None:
            says = f"{name} drops all packets{way} with {chosen} ({flows}, {len(lost):,} packets)"
            step = f"look for a rule or a defect in {name} that depends on these bits"
            return _Cause("selective-loss", says, step, {"selection": chosen})
        says = f"{name} drops all packets{way} of {flows} ({len(lost):,} packets)"
        step = f"drain {name}, check its tables"
        if size is None:
            return _Cause("blackhole", says, step, {})
        says += f", perhaps because of their length: nothing longer than {size:,} bytes passed"
        step = f"send packets of several lengths through {name}; check its MTU and its tables"
        return _Cause("blackhole", says, step, {"longest_passed_bytes": size})
    if limit is not None:
        sources = {case.flows[f].src for f in (*np.unique(lost["flow"]).tolist(), *near)}
        more = sum(near.values())
        share = packets_of(len(lost) + more, group.packets + _packets(case, near))
        details: dict[str, str | int | float] = {"bits_per_second": round(limit)}
        if len(sources) >= INCAST_SOURCES and group.to_tap is not None:
            says = f"{len(sources)} sources overload {name}{way}: it drops {share}"
            return _Cause("incast", says, "spread the sources in time, or use ECN or PFC", details)
        says = f"{name} drops {share}{way}: no more than {rate(limit)} pass"
        return _Cause(
            "rate-limit", says, f"check speed and shapers of the egress of {name}", details
        )
    size = _by_size(group, lost)
    if size is not None:
        return _too_long(group, lost, size)
    return _Cause("loss", f"{name} drops {share}{way}", f"{check}, or drain it", {})


def _passed_between(group: HopGroup, first: int, last: int) -> int:
    """Packets that entered the hops and passed in windows inside an interval; flows with both
    first and last packet inside count as well."""
    width, origin = group.ways.window_ns, group.ways.origin_ns
    begin, end = -((origin - first) // width), (last - origin) // width
    passed = 0
    for hop in (*group.hops, *group.beside):
        if hop.whole is None:
            continue
        begin, end = max(begin, 0), min(end, state.WINDOWS)
        passed += int(hop.windows[begin:end, state.PACKETS_IN].sum()) if end > begin else 0
        flows = hop.passed
        passed += int(np.count_nonzero((flows["first_ns"] >= first) & (flows["first_ns"] <= last)))
        passed += int(np.count_nonzero((flows["last_ns"] >= first) & (flows["last_ns"] <= last)))
    return passed


def _outages(group: HopGroup, lost: NDArray[Any]) -> int:
    """How often everything was lost for a while; 0 if packets were lost besides.

    Of random loss this many packets in a row would hardly be hit.
    """
    loss, passed = _by_window(group, lost), np.zeros(state.WINDOWS, np.int64)
    for hop in (*group.hops, *group.beside):
        if hop.whole is not None:
            passed += hop.windows[:, state.PACKETS_IN]
    used = np.flatnonzero(loss + passed)
    loss, passed = loss[used], passed[used]
    offered = int((loss + passed).sum())
    edges = np.flatnonzero(np.diff(passed == 0, prepend=False, append=False))
    outages, inside = 0, np.zeros(len(used), np.bool_)
    for begin, end in edges.reshape(-1, 2).tolist():
        if offered * (len(lost) / offered) ** int(loss[begin:end].sum()) <= CHANCE:
            outages += 1
            inside[max(begin - 1, 0) : end + 1] = True  # it begins and ends within a window
    return outages if loss[~inside].sum() == 0 else 0


def _by_window(group: HopGroup, lost: NDArray[Any]) -> NDArray[np.int64]:
    """Lost packets in each window."""
    at = (lost["time"] - group.ways.origin_ns) // group.ways.window_ns
    return np.bincount(np.clip(at, 0, state.WINDOWS - 1), minlength=state.WINDOWS)


def _left(case: Case, group: HopGroup, last: int) -> bool:
    """Whether flows took another next tap soon after the last loss."""
    assert case.ways is not None
    visits = case.ways.visits
    taps = [hop.from_tap for hop in group.hops]
    moved = (visits["moves"] > 0) & np.isin(visits["first_next_tap"], taps)
    moved &= ~np.isin(visits["next_tap"], taps)
    soon = np.abs(visits["last_move_ns"] - last) <= MOVED_WITHIN_NS
    return bool(np.any(moved & soon))


def _swallowed(group: HopGroup, lost: NDArray[Any]) -> set[int]:
    """Flows that lost all packets for a while: in one or two long runs, nothing passed between.

    Runs also hold packets that are not lost: those after the end of a capture.
    """
    visits = group.ways.visits
    taps = {hop.from_tap for hop in group.hops}
    flows, counts = np.unique(lost["flow"], return_counts=True)
    total = dict(zip(flows.tolist(), counts.tolist(), strict=True))
    runs = {flow: [0, 0, 0] for flow in total}
    for visit in visits[np.isin(visits["flow"], flows) & np.isin(visits["tap"], list(taps))]:
        seen = runs[int(visit["flow"])]
        seen[0] += int(visit["long_runs"])
        seen[1] += int(visit["in_long_runs"])
        seen[2] += int(visit["run"])
    swallowed = {
        flow
        for flow, (long_runs, packets, _) in runs.items()
        if 0 < long_runs <= MOST_RUNS and 0.9 * total[flow] <= packets <= 2 * total[flow]
    }
    ended = {f for f, (_, _, run) in runs.items() if 2 <= total[f] <= run <= 2 * total[f]}
    return swallowed | ended if _end_together(group, ended, total) else swallowed


def _end_together(group: HopGroup, flows: Collection[int], lost: Mapping[int, int]) -> bool:
    """Whether random loss would hardly hit all packets of these flows from one packet on, however
    few they are.

    Each ends in a row of lost packets: the packets after the first of a row count.
    """
    if not flows:
        return False
    others = len(set(group.passed()["flow"].tolist()) - set(flows))
    share = sum(lost.values()) / group.packets
    return seldom(others, len(flows), share, sum(lost[f] - 1 for f in flows))


def _rate_limit(group: HopGroup) -> tuple[float | None, float]:
    """Bits per second that pass while packets are lost, if a queue or a constant rate shows; the
    usual of the longest waits meanwhile, ns."""
    width, origin = group.ways.window_ns, group.ways.origin_ns
    loss = np.zeros(state.WINDOWS, np.int64)
    lost_bytes = np.zeros(state.WINDOWS, np.int64)
    lost = group.lost()
    at = np.clip((lost["time"] - origin) // width, 0, state.WINDOWS - 1)
    np.add.at(loss, at, 1)
    np.add.at(lost_bytes, at, lost["wire_bytes"])
    out = np.zeros(state.WINDOWS, np.int64)
    most = np.zeros(state.WINDOWS, np.int64)
    for hop in (*group.hops, *group.beside):
        if hop.whole is None:
            continue
        out += hop.windows[:, state.BYTES_IN]
        above = hop.windows[:, state.DELAY_MOST] - int(hop.whole["delay_min"])
        most = np.maximum(most, np.where(hop.windows[:, state.PACKETS_IN] > 0, above, 0))
    lossy = (loss > 0) & (out > 0)
    if not lossy.any():
        return None, 0.0
    median = float(np.median(out[lossy])) * 8e9 / width
    queued = float(np.median(most[lossy]))
    usual = _usual_delay(group)
    if queued >= max(QUEUE_NS, QUEUE_FACTOR * usual):
        return median, queued
    busy = out > 0
    offered = out + lost_bytes
    if np.count_nonzero(lossy) < LIMITED_WINDOWS:
        return None, queued
    vary_in = float(np.std(offered[lossy]) / np.mean(offered[lossy]))
    vary_out = float(np.std(out[lossy]) / np.mean(out[lossy]))
    ceiling = float(np.median(out[lossy]))
    below = np.count_nonzero(out[busy & ~lossy] <= 1.1 * ceiling)
    free = np.count_nonzero(busy & ~lossy)
    limited = vary_in > 0.15 and vary_out < 0.5 * vary_in and below >= 0.9 * free
    return median if limited else None, queued


def _usual_delay(group: HopGroup) -> float:
    """Median over the other hops of their longest delay above the minimum, ns."""
    mine = {(hop.from_tap, hop.to_tap) for hop in group.hops}
    others = []
    for hop in group.ways.hops:
        if (hop.from_tap, hop.to_tap) in mine or hop.whole is None or hop.lost.size:
            continue
        used = hop.windows[:, state.PACKETS_IN] > 0
        most = hop.windows[used, state.DELAY_MOST] - int(hop.whole["delay_min"])
        others.append(float(np.median(most)))
    return float(np.median(others)) if others else 0.0


def _pass_meanwhile(group: HopGroup, lost: NDArray[Any]) -> set[int]:
    """Flows with packets that passed between the first and the last loss, as far as the times of
    their first and last packet tell."""
    passed = group.passed()
    meanwhile = passed["first_ns"] <= lost["time"][-1]
    meanwhile &= passed["last_ns"] >= lost["time"][0]
    return set(passed["flow"][meanwhile].tolist())


def _too_long(group: HopGroup, lost: NDArray[Any], size: int) -> _Cause:
    name = group.name()
    says = f"{name} drops all packets{group.way()} longer than {size:,} bytes"
    details: dict[str, str | int | float] = {"longest_passed_bytes": size}
    says += f" ({len(lost):,} packets)"
    return _Cause("selective-loss", says, f"check the MTU of {name}", details)


def _by_size(group: HopGroup, lost: NDArray[Any], others: set[int] | None = None) -> int | None:
    """The longest packet that passed meanwhile, if every lost one is longer.

    others: the flows that can have passed anything meanwhile; None: all.
    """
    known = lost["frame"] > 0
    if np.count_nonzero(known) < LENGTH_PACKETS:
        return None
    passed = group.passed()
    if others is not None:
        passed = passed[np.isin(passed["flow"], list(others))]
    # Of flows that lost nothing at any time, and of all flows while packets were lost.
    limits = [int(passed["bytes_max"].max(initial=0)), _longest_inside(group, lost)]
    longest = min((limit for limit in limits if limit), default=None)
    return longest if longest and int(lost["wire_bytes"][known].min()) > longest else None


def _longest_inside(group: HopGroup, lost: NDArray[Any]) -> int:
    """The longest packet that passed in windows between the first and the last loss; 0 without
    one."""
    width, origin = group.ways.window_ns, group.ways.origin_ns
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    inside = slice(max(-((origin - first) // width), 0), max((last - origin) // width, 0))
    hops = [hop for hop in (*group.hops, *group.beside) if hop.whole is not None]
    longest = [int(hop.windows[inside, state.BYTES_MOST].max(initial=0)) for hop in hops]
    return max(longest, default=0)
