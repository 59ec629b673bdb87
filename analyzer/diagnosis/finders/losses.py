"""Losses: on a hop, before the first tap, after the last one, and those of flows that ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations
from math import comb, log
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ...measures.hops import state
from ...measures.troubles import (
    CORRUPT,
    JUMPED,
    LATE,
    LATE_AFTER,
    LOST_AFTER,
    NAK_SENT,
    RECOVERED_LOSS,
    RESENT,
    Trouble,
)
from ...results.diagnosis import AT_MOST, LOST_AGAIN, Confidence, Finding, Kind, Place
from ...results.flow import Flow
from ...statistics.shares import wilson
from ...summary.trust import gaps_in
from ...wire.bth import MRC, TRANSPORT_NAMES, UC
from ...wire.packets import FULL_HOP_LIMITS
from ...words import printable
from ..case import Case, lost_or_late, seen_in_part
from ..finding import (
    LAST_SWITCH,
    after,
    before,
    by_hosts,
    cheap,
    counted,
    death_of,
    finding,
    frames,
    hosts,
    interval,
    link_of_receiver,
    may_be_incast,
    of_same_hosts,
    only,
    packets_of,
    rate,
    span_of,
    tap_of,
)
from ..hop_groups import HopGroup, losing_groups, loss_evidence
from ..known import (
    CLOCKS_NS,
    DISORDER,
    LOSSES,
    OVERFLOWS,
    QUEUED_SINCE_NS,
    REFUSALS,
    SLOW_PATH,
    SLOWNESS,
    Finder,
    Known,
)
from .delays import late_over
from .hosts import refuses_one, timeouts_of
from .mrc import of_ports

LOSS_CAUSES: Final[tuple[Kind, ...]] = (*LOSSES, *DISORDER, *REFUSALS, "pause", *SLOWNESS)
"""Kinds of causes that explain such an effect in the same flows at the same time."""

MOST_RUNS = 2
TOTAL_PACKETS = 3
"""Lost packets in a row, and no passed packet between them, from which a flow is swallowed."""
OVERFLOW_NS = 500_000
"""A queue this long, ten times the usual delay, while packets are lost: the queue overflows."""
OVERFLOW_FACTOR = 10
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
FULL, FULL_SHARE = 0.5, 0.75
"""A queue overflows if this share of the lost packets are beside packets that wait at least this
part of the longest wait: buffers that outputs share are not always full at the same length."""
EMPTY, EMPTY_SHARE = 0.1, 0.1
"""It does not overflow if more than this share is lost beside packets that wait for less than this
part of the longest wait."""
KNOWN_SHARE = 0.5
"""Lost packets whose neighbours are known, from which these decide and not windows of time."""
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
        near = _lost_near(case, group, lost)
        cause = _cause(case, group, lost, near)
        flows, counts = np.unique(lost["flow"], return_counts=True)
        passed = group.passed()
        mine = np.isin(passed["flow"], flows) if cause.kind == "blackhole" else slice(None)
        of_packets = len(lost) + int(passed["packets"][mine].sum())
        if cause.kind in ("loss", *OVERFLOWS):
            of_packets = _offered(case, group, lost)
        hits = dict(zip(flows.tolist(), counts.tolist(), strict=True))
        if cause.kind in OVERFLOWS:
            hits |= near
            of_packets += _packets_of_flows(case, near)
        span = (int(lost["time"][0]), int(lost["time"][-1]))
        uncertain_ns = 0
        if cause.kind in OVERFLOWS:  # from the first queue on, which begins inside a window
            begin, end = _overflow(case, group, lost)
            span = (min(span[0], begin + group.tap_hops.window_ns), max(span[1], end))
            uncertain_ns = span[0] - begin
            queues = group.queues(max(OVERFLOW_NS, OVERFLOW_FACTOR * _usual_delay(group)))
            if queues and queues[0][0] < begin:
                cause.details[QUEUED_SINCE_NS] = max(queues[0][0], case.first_ns)
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


def _lost_near(case: Case, group: HopGroup, lost: NDArray[Any]) -> dict[int, int]:
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


def _packets_of_flows(case: Case, lost: Mapping[int, int]) -> int:
    """Packets of these flows, with the lost ones."""
    flows = [case.flows[f] for f in lost]
    return sum(lost.values()) + sum(f.data_packets for f in flows)


def _overflow(case: Case, group: HopGroup, lost: NDArray[Any]) -> tuple[int, int]:
    """First and last loss, or begin and end of the queues that lose the first and the last packet:
    earlier and later ones lose nothing. Queues begin and end with a window."""
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    begin, end = first, last
    for since, until in group.queues(max(OVERFLOW_NS, OVERFLOW_FACTOR * _usual_delay(group))):
        begin = since if since <= first < until else begin
        end = until if since <= last < until else end
    return max(begin, case.first_ns), min(end, case.last_ns)


def _offered(case: Case, group: HopGroup, lost: NDArray[Any]) -> int:
    """Packets that entered the hops in the time of the loss, with the lost ones. Few losses do not
    show when it began: then in all the time."""
    if len(lost) < FEW:
        return group.packets
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    flows = [case.flows[f] for f in np.unique(lost["flow"]).tolist()]
    active = interval(case, flows, len(lost), (first, last), 0)
    width, origin = group.tap_hops.window_ns, group.tap_hops.origin_ns
    until = group.tap_hops.newest_ns if active.until_ns is None else active.until_ns
    inside = slice(max((first - origin) // width, 0), max((until - origin) // width + 1, 0))
    hops = [hop for hop in (*group.hops, *group.beside) if hop.total is not None]
    return len(lost) + sum(int(hop.windows[inside, state.PACKETS_IN].sum()) for hop in hops)


def _by_fabric(group: HopGroup) -> str:
    """The evidence for the next tap, where only the fabric file shows it."""
    by_fabric = any(hop.expected_by == "fabric" for hop in group.hops)
    return " (next tap by the fabric file)" if by_fabric else ""


def _confidence(case: Case, group: HopGroup) -> Confidence:
    names = case.registry.tap_names
    after = {names[hop.to_tap] for hop in group.hops if hop.to_tap < len(names)}
    if case.dropping and (not after or after & case.dropping):
        return "possible"
    known = all(hop.expected_by in ("flow", "destination", "host") for hop in group.hops)
    return "proven" if known else "likely"


def _cause(case: Case, group: HopGroup, lost: NDArray[Any], near: Mapping[int, int]) -> _Cause:
    """What kind of loss this is, in the order from the most to the least specific.

    near: packets that the same egress lost if it overflows, by flow.
    """
    name, way = group.name(), group.way()
    share = packets_of(len(lost), _offered(case, group, lost))
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
        offered = _offered(case, group, lost) + _packets_of_flows(case, near)
        share = packets_of(len(lost) + more, offered)
        details: dict[str, str | int | float] = {"bits_per_second": round(limit)}
        says = f"{name} drops {share}{way}: no more than {rate(limit)} pass"
        if not queued_ns:
            step = f"check policers of the egress of {name}"
            return _Cause("rate-limit", f"{says}, without a queue", step, details)
        if len(sources) >= INCAST_SOURCES and _is_link_of_host(case, group, lost):
            says = f"{len(sources)} sources overload {name}{way}: it drops {share}"
            return _Cause("incast", says, "spread the sources in time, or use ECN or PFC", details)
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
    width, origin = group.tap_hops.window_ns, group.tap_hops.origin_ns
    begin, end = -((origin - first) // width), (last - origin) // width
    passed = 0
    for hop in (*group.hops, *group.beside):
        if hop.total is None:
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
        if hop.total is not None:
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
    at = (lost["time"] - group.tap_hops.origin_ns) // group.tap_hops.window_ns
    return np.bincount(np.clip(at, 0, state.WINDOWS - 1), minlength=state.WINDOWS)


def _left(case: Case, group: HopGroup, last: int) -> bool:
    """Whether flows took another next tap soon after the last loss."""
    assert case.tap_hops is not None
    visits = case.tap_hops.visits
    taps = [hop.from_tap for hop in group.hops]
    moved = (visits["moves"] > 0) & np.isin(visits["first_next_tap"], taps)
    moved &= ~np.isin(visits["next_tap"], taps)
    soon = np.abs(visits["last_move_ns"] - last) <= MOVED_WITHIN_NS
    return bool(np.any(moved & soon))


def _swallowed(group: HopGroup, lost: NDArray[Any]) -> set[int]:
    """Flows that lost all packets for a while: in one or two long runs, nothing passed between.

    Runs also hold packets that are not lost: those after the end of a capture.
    """
    visits = group.tap_hops.visits
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
    """Bits per second that pass while packets are lost, if a full queue or a constant rate shows;
    the usual wait beside a lost packet, ns, 0 without a full queue.

    A full queue drops what comes while the packets beside it wait as long as any. Random loss hits
    packets at an empty queue as well, and others pass with a longer wait.
    """
    width, origin = group.tap_hops.window_ns, group.tap_hops.origin_ns
    loss = np.zeros(state.WINDOWS, np.int64)
    lost_bytes = np.zeros(state.WINDOWS, np.int64)
    lost = group.lost()
    at = np.clip((lost["time"] - origin) // width, 0, state.WINDOWS - 1)
    np.add.at(loss, at, 1)
    np.add.at(lost_bytes, at, lost["wire_bytes"])
    out = np.zeros(state.WINDOWS, np.int64)
    most = np.zeros(state.WINDOWS, np.int64)
    for hop in (*group.hops, *group.beside):
        if hop.total is None:
            continue
        out += hop.windows[:, state.BYTES_IN]
        above = hop.windows[:, state.DELAY_MOST] - int(hop.total["delay_min"])
        most = np.maximum(most, np.where(hop.windows[:, state.PACKETS_IN] > 0, above, 0))
    lossy = (loss > 0) & (out > 0)
    if not lossy.any():
        return None, 0.0
    median = float(np.median(out[lossy])) * 8e9 / width
    busy = out > 0
    waits = lost["wait"][lost["wait"] >= 0]
    if len(waits) < KNOWN_SHARE * len(lost):
        waits = most[lossy]
    queued = float(np.median(waits))
    full = max(np.quantile(most[lossy], 0.9), np.quantile(most[busy], 0.95))
    is_full = np.count_nonzero(waits >= FULL * full) >= FULL_SHARE * len(waits)
    is_full &= np.count_nonzero(waits < EMPTY * full) <= EMPTY_SHARE * len(waits)
    if is_full and queued >= max(OVERFLOW_NS, OVERFLOW_FACTOR * _usual_delay(group)):
        return median, queued
    offered = out + lost_bytes
    if np.count_nonzero(lossy) < LIMITED_WINDOWS:
        return None, 0.0
    vary_in = float(np.std(offered[lossy]) / np.mean(offered[lossy]))
    vary_out = float(np.std(out[lossy]) / np.mean(out[lossy]))
    ceiling = float(np.median(out[lossy]))
    below = np.count_nonzero(out[busy & ~lossy] <= 1.1 * ceiling)
    free = np.count_nonzero(busy & ~lossy)
    limited = vary_in > 0.15 and vary_out < 0.5 * vary_in and below >= 0.9 * free
    return median if limited else None, 0.0


def _is_link_of_host(case: Case, group: HopGroup, lost: NDArray[Any]) -> bool:
    """Whether all packets on the output, passed or lost, go to one host, whose own packets come
    over this link before they pass a router, and no tap sees them later.

    Several sources do not overload a link between switches just because it is slow.
    """
    if group.to_tap is None:
        return False
    hops = group.tap_hops.hops
    into = [hop.passed["flow"] for hop in hops if hop.to_tap == group.to_tap]
    flows = np.unique(np.concatenate([*into, lost["flow"]]))
    receivers = {case.flows[f].dst for f in flows.tolist()}
    onward = [hop.passed["flow"] for hop in hops if hop.from_tap == group.to_tap]
    if len(receivers) != 1 or np.isin(flows, np.concatenate([*onward, flows[:0]])).any():
        return False
    tap, progress = case.registry.tap_names[group.to_tap], case.measuring.troubles.progress
    return any(
        flow.src in receivers
        and tap in flow.taps
        and int(progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS
        for flow in case.flows
    )


def _usual_delay(group: HopGroup) -> float:
    """Median over the other hops of their longest delay above the minimum, ns."""
    mine = {(hop.from_tap, hop.to_tap) for hop in group.hops}
    others = []
    for hop in group.tap_hops.hops:
        if (hop.from_tap, hop.to_tap) in mine or hop.total is None or hop.lost.size:
            continue
        used = hop.windows[:, state.PACKETS_IN] > 0
        most = hop.windows[used, state.DELAY_MOST] - int(hop.total["delay_min"])
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
    width, origin = group.tap_hops.window_ns, group.tap_hops.origin_ns
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    inside = slice(max(-((origin - first) // width), 0), max((last - origin) // width, 0))
    hops = [hop for hop in (*group.hops, *group.beside) if hop.total is not None]
    longest = [int(hop.windows[inside, state.BYTES_MOST].max(initial=0)) for hop in hops]
    return max(longest, default=0)


RULE_FLOWS = 3
"""Swallowed flows, and flows that pass, from which a rule is looked for."""
CHANCE = 0.01
"""A rule is named only if flows drawn at random would fit one of the rules tried less often."""
MOST_BITS = 2

_FIELDS: Final[tuple[tuple[str, int, Callable[[Flow], int]], ...]] = (
    ("destination QP", 24, lambda flow: flow.dest_qp),
    ("DSCP", 6, lambda flow: next(iter(flow.congestion.dscp), 0)),
)


def dscp_selection(case: Case, swallowed: set[int], others: set[int]) -> str | None:
    """`DSCP 26`: the class of all flows that are swallowed and of none that pass."""
    classes = {f: next(iter(case.flows[f].congestion.dscp), None) for f in swallowed | others}
    wanted = {classes[f] for f in swallowed}
    if len(wanted) != 1 or None in wanted or wanted & {classes[f] for f in others}:
        return None
    tried = len(set(classes.values()))
    return f"DSCP {next(iter(wanted))}" if unlikely(swallowed, others, tried) else None


def unlikely(swallowed: set[int], others: set[int], tried: int, least: int = RULE_FLOWS) -> bool:
    """Whether as many flows drawn at random would seldom be the ones of one of this many
    classes."""
    if len(swallowed) < least or len(others) < least:
        return False
    return tried / CHANCE <= comb(len(swallowed) + len(others), len(swallowed))


def seldom(others: int, hit: int, share: float, packets: int) -> bool:
    """Whether random loss of this share of the packets would seldom hit any `hit` flows, of these
    and this many others, in this many further packets: the number of ways to choose the flows,
    times the share for each packet. In logarithms: the number of ways exceeds any float."""
    return log(comb(others + hit, hit)) + packets * log(share) < log(CHANCE)


def selection(case: Case, swallowed: set[int], others: set[int]) -> str | None:
    """`destination QP bit 3 = 1`: the rule that fits all flows; None without a convincing one."""
    if len(swallowed) < RULE_FLOWS or len(others) < RULE_FLOWS:
        return None
    tried = sum(bits + bits * (bits - 1) // 2 for _, bits, _ in (*_FIELDS, ("", 16, None)))
    if tried * 4 * 0.5 ** (len(swallowed) + len(others)) > CHANCE:
        return None
    fields = [(name, bits, {f: of(case.flows[f]) for f in swallowed | others})
              for name, bits, of in _FIELDS]  # fmt: skip
    ports = {f: _port(case, f) for f in swallowed | others}
    if all(port is not None for port in ports.values()):
        fields.insert(0, ("UDP source port", 16, {f: p for f, p in ports.items() if p is not None}))
    for count in range(1, MOST_BITS + 1):
        for name, bits, values in fields:
            for chosen in combinations(range(bits), count):
                mask = sum(1 << bit for bit in chosen)
                wanted = {values[f] & mask for f in swallowed}
                if len(wanted) == 1 and not any(values[f] & mask in wanted for f in others):
                    value = next(iter(wanted))
                    rule = ", ".join(f"bit {bit} = {value >> bit & 1}" for bit in chosen)
                    return f"{name} {rule}"
    return None


def _port(case: Case, flow: int) -> int | None:
    """The UDP source port of a flow that has only one."""
    paths = case.measuring.entropy.paths(flow)
    return int(paths["key"][0]) & 0xFFFF if len(paths) == 1 else None


def losses_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets of the sender that never reached the first tap of their flow."""
    lost = {}
    for flow in case.flows:
        n = lost_before(case, flow)
        if n and not _is_lost_elsewhere(case, known, flow):
            lost[flow.id] = n
    for group in by_hosts(case.flows[f] for f in lost):
        yield _loss_before(case, group, {flow.id: lost[flow.id] for flow in group})


def _is_lost_elsewhere(case: Case, known: Known, flow: Flow) -> bool:
    """Whether the sender lost a port or all of its links, the flow left a link that went down, or a
    wrong clock makes it seem so."""
    troubles = case.measuring.troubles
    seen = [t for kind in (RECOVERED_LOSS, JUMPED) if (t := troubles.of(flow.id, kind))]
    span = span_of(seen) if seen else (flow.first_time_ns, flow.last_time_ns)
    return (
        known.hit_by("mrc-path", flow.id, *span)
        or known.lost_over_link(flow.id, *span)
        or known.overflows(flow)
        or known.cut_off(flow.src, *span)
        or known.misplaced(flow, *span)
    )


def _retransmissions(flow: Flow, lost: int) -> int:
    """Of the lost packets, those that were retransmissions: the flow counts each PSN once, as
    recovered or missing."""
    missing = (flow.missing_packets or 0) - (flow.capture_loss_suspected_packets or 0)
    return max(lost - (flow.recovered_packets or 0) - max(missing, 0), 0)


def _loss_before(case: Case, group: list[Flow], lost: dict[int, int]) -> Finding:
    troubles = case.measuring.troubles
    seen = [
        trouble
        for flow in group
        for kind in (RECOVERED_LOSS, JUMPED)
        if (trouble := troubles.of(flow.id, kind))
    ]
    packets = sum(lost.values())
    tap = tap_of(case, seen)
    alike = of_same_hosts(case, group)
    if tap is not None and case.tap_hops is not None:  # of parallel links, the packets of this one
        first_taps, number = case.tap_hops.first_taps(), case.registry.tap_names.index(tap)
        alike = [flow for flow in alike if first_taps.get(flow.id, number) == number]
    could = packets + sum(flow.data_packets for flow in alike)
    first = min((t.first_ns for t in seen), default=min(flow.first_time_ns for flow in group))
    last = max((t.last_ns for t in seen), default=max(flow.last_time_ns for flow in group))
    says = f"{packets_of(packets, could)} from {hosts(group)} are lost {before(case, tap)}"
    resent = sum(_retransmissions(flow, lost[flow.id]) for flow in group)
    if resent or any(timeouts_of(flow) for flow in group):
        says = f"at least {says}"  # packets lost at the end of a run leave no gap
    if resent:
        says += f", {resent:,} as " + ("a retransmission" if resent == 1 else "retransmissions")
    late = late_over(case, tap, first, last) if tap is not None else {}
    if late:  # one queue overflows and delays: one cause
        first, last = min(first, span_of(late.values())[0]), max(last, span_of(late.values())[1])
        overtaken = counted(sum(trouble.packets for trouble in late.values()), "packet")
        says += f", and {overtaken} of {counted(len(late), 'flow')} over this path are late"
    details: dict[str, str | int | float] = {LOST_AGAIN: resent} if resent else {}
    if late and tap is not None:
        details[SLOW_PATH] = tap
    return finding(
        case,
        "loss",
        Place(to_tap=tap, direction="before the tap", host=only(flow.src for flow in group)),
        could,
        says,
        "look for a queue that overflows on this path"
        if late
        else LAST_SWITCH
        if may_be_incast(group)
        else "check links and devices between the sender and the tap; a capture at the sender "
        "shows which",
        hits=dict.fromkeys(late, 0) | lost,
        span=(first, last),
        confidence="possible" if tap in case.dropping else "proven",
        seen=[*seen, *late.values()],
        packets=packets,
        details=details or UNSET,
    )


GO_BACK_N = 2
"""A sender goes back N if it retransmits at least this many packets per skipped one."""


def lost_before(case: Case, flow: Flow) -> int:
    """Packets of the flow that were lost before the tap; 0 where the capture cannot tell.

    A sender that goes back N transmits runs of consecutive PSNs. Without late packets every PSN
    that a run skips is a lost packet, also when it is a retransmission that was lost. Of other
    senders, with late packets, and where the sender drops ACKs with a wrong ICRC, only those count
    that a retransmission replaced; so also where its answers are not known, because a sender skips
    what is acknowledged while it retransmits. Without identification a packet that came twice, at
    parallel taps, may have overtaken itself. UC packets are never retransmitted: their missing
    PSNs are lost.
    Gaps in a capture look like losses.
    """
    if flow.retransmitted_packets is None or gaps_in(flow, case.gaps):
        return 0
    troubles = case.measuring.troubles
    recovered = flow.recovered_packets or 0
    suspected = flow.capture_loss_suspected_packets or 0
    if flow.transport == TRANSPORT_NAMES[UC]:
        return max((flow.missing_packets or 0) - suspected, 0)
    jumped, resent = troubles.of(flow.id, JUMPED), troubles.of(flow.id, RESENT)
    disordered = troubles.of(flow.id, LATE) or troubles.of(flow.id, LATE_AFTER)
    peer = case.peers.get(flow.id)
    untold = peer is None or troubles.of(peer, CORRUPT)
    if seen_in_part(flow) or lost_or_late(case, flow):
        return 0  # what was lost, is late, or took another way looks the same
    if beside := case.transmitted_beside(flow):
        return max(recovered - beside, 0)
    if jumped is None or resent is None or disordered or untold:
        return recovered
    if _begins_at_tap(case, flow, jumped):
        return recovered
    if resent.packets < GO_BACK_N * jumped.packets or flow.transport == TRANSPORT_NAMES[MRC]:
        return recovered
    if troubles.retransmits(flow.id) == "selective":
        return recovered
    return max(recovered, jumped.packets - suspected)


def _begins_at_tap(case: Case, flow: Flow, jumped: Trouble) -> bool:
    """Whether the first PSNs that the flow skips are before its first packet at a tap whose capture
    began later than others: they may have passed it before."""
    if not jumped.frames:
        return False
    time_ns, _, tap = jumped.frames[0]
    first_ns = case.first_sightings.get((flow.id, tap))
    return first_ns is not None and flow.first_time_ns < time_ns <= first_ns


LATE_SHARE = 0.25
"""Share of the NAKed packets that were only late, from which reordering is the cause: a go-back-N
receiver drops the packets that overtook a late one and NAKs these as well. Loss alone has none."""
RARE = 0.003
"""Upper end of the share of packets that a receiver drops, up to which it is a note if it costs
little time: every host drops a few packets when it starts or is busy."""
FEW = 10
"""Of fewer packets it is a note, whatever they cost: they show no fault that goes on."""


def losses_after(case: Case, known: Known) -> Iterator[Finding]:
    """Packets seen in order at the last tap of their flow that the receiver missed."""
    troubles = case.measuring.troubles
    hit: list[Flow] = []
    for f in sorted({*troubles.flows(LOST_AFTER), *troubles.flows(LATE_AFTER)}):
        seen = _naked(case, f)
        first, last = span_of(seen)
        explained = known.explains(LOSS_CAUSES, f, first, last)
        unknown = case.flows[f].retransmitted_packets is None
        if explained or unknown or f not in case.peers or refuses_one(case, f):
            continue
        hit.append(case.flows[f])
    for tap, beyond in _beyond_one_link(case, hit):
        yield _loss_after(case, "loss", beyond, tap)
        gone = {flow.id for flow in beyond}
        hit = [flow for flow in hit if flow.id not in gone]
    for group in by_hosts(hit):
        late = [flow for flow in group if _late_share(case, [flow]) > LATE_SHARE]
        if late and _late_share(case, group) <= LATE_SHARE:
            late = []  # late packets that the sender retransmits at once look like lost ones
        lost = [flow for flow in group if flow not in late]
        yield from (_loss_after(case, "loss", part) for part in by_hosts(lost))
        yield from (_loss_after(case, "reordering", part) for part in by_hosts(late))


MOST_OF_LOSS = 0.8
"""Share of the losses after parallel links from which one of them is named."""


def _beyond_one_link(case: Case, hit: list[Flow]) -> Iterator[tuple[int, list[Flow]]]:
    """The flows that lose packets after one of several parallel links, by that link: it has most of
    the losses, and more than its share of the packets makes likely."""
    if case.tap_hops is None or not hit:
        return
    last_tap = case.tap_hops.last_taps()
    places = case.parallel_places
    lost: dict[int, list[Flow]] = {}
    for flow in hit:
        if (tap := last_tap.get(flow.id)) is not None:
            lost.setdefault(tap, []).append(flow)
    for tap, flows in lost.items():
        beside = {t for t in last_tap.values() if places[t] == places[tap]}
        share = _data_at(case, last_tap, {tap}, flows) / max(
            _data_at(case, last_tap, beside, flows), 1
        )
        packets = {t: _naked_packets(case, lost.get(t, [])) for t in beside}
        total = sum(packets.values())
        if len(beside) < 2 or packets[tap] < MOST_OF_LOSS * total:
            continue
        if seldom_by_chance(packets[tap], total, share):
            yield tap, flows


def seldom_by_chance(hits: int, tries: int, share: float) -> bool:
    """Whether this many of the tries or more would seldom hit something with this share."""
    if not 0 < share < 1:
        return False
    terms = range(hits, tries + 1)
    return sum(comb(tries, k) * share**k * (1 - share) ** (tries - k) for k in terms) < CHANCE


def _data_at(case: Case, last_tap: Mapping[int, int], taps: set[int], like: list[Flow]) -> int:
    """Data packets of the flows that leave the view at these taps and come as far as these flows
    do: from hosts of the same side."""
    sources = {flow.src for flow in like}
    return sum(
        flow.data_packets
        for flow in case.flows
        if last_tap.get(flow.id) in taps and flow.src in sources
    )


def _naked_packets(case: Case, flows: Iterable[Flow]) -> int:
    return sum(trouble.packets for flow in flows for trouble in _naked(case, flow.id))


def _late_share(case: Case, flows: Iterable[Flow]) -> float:
    """Share of the NAKed packets of these flows that were only late."""
    late = everything = 0
    for flow in flows:
        overtaken = case.measuring.troubles.of(flow.id, LATE_AFTER)
        late += overtaken.packets if overtaken else 0
        everything += sum(trouble.packets for trouble in _naked(case, flow.id))
    return late / everything


def _are_all_late(case: Case, group: list[Flow]) -> bool:
    """Whether the receivers acknowledged every packet that they NAKed without a retransmission."""
    of = case.measuring.troubles.of
    late, naked = (
        sum(trouble.packets for flow in group if (trouble := of(flow.id, kind)))
        for kind in (LATE_AFTER, LOST_AFTER)
    )
    return late >= naked


def _naked(case: Case, f: int) -> list[Trouble]:
    troubles = (case.measuring.troubles.of(f, kind) for kind in (LATE_AFTER, LOST_AFTER))
    return [trouble for trouble in troubles if trouble is not None]


def _hidden(case: Case, flow: Flow) -> bool:
    """Whether packets of the flow may be lost or late between taps without a trace: hops from and
    to a tap with gaps are not judged, also when the flow does not live during a gap."""
    return bool(gaps_in(flow, case.gaps)) or any(tap in case.gaps for tap in flow.taps)


def _loss_after(case: Case, kind: Kind, group: list[Flow], beyond: int | None = None) -> Finding:
    """beyond: the link after which these flows lose packets, and not those over parallel links."""
    seen = [trouble for flow in group for trouble in _naked(case, flow.id)]
    last_tap = {} if case.tap_hops is None else case.tap_hops.last_taps()
    if beyond is None:
        could = sum(flow.data_packets for flow in of_same_hosts(case, group))
    else:
        could = _data_at(case, last_tap, {beyond}, group)
    packets = sum(trouble.packets for trouble in seen)
    rare = wilson(packets, could)[1] <= RARE
    hidden = case.measuring.many_taps and any(_hidden(case, flow) for flow in group)
    link = only(link_of_receiver(case, flow) or "" for flow in group) or None
    receiver = only(flow.dst for flow in group)
    names = case.registry.tap_names
    last = {last_tap.get(flow.id) for flow in group}
    tap = link or only("" if t is None else names[t] for t in last) or None
    if case.tap_hops is None:
        tap = tap_of(case, seen)
    parted = any(seen_in_part(flow) for flow in group)
    if hidden or parted:  # they may be lost, or late, between taps, or on a way without one
        link = tap = None
    if kind == "reordering":
        where = "at the receiver" if hidden or parted else after(case, tap)
        what = "arrive late" if _are_all_late(case, group) else "arrive late or are lost"
        says = f"{packets_of(packets, could)} from {hosts(group)} {what} {where}"
    elif link:
        who = "the receivers" if receiver is None else printable(receiver)
        says = f"{packets_of(packets, could)} from {hosts(group)} reach their link, but {who} drop"
        says += "s them" if receiver else " them"
    else:
        says = f"{packets_of(packets, could)} from {hosts(group)} are lost or late"
        says += (
            " on their way: gaps in captures hide where"
            if hidden
            else " on their way, in part over paths without a tap"
            if parted
            else f" {after(case, tap)}"
        )
    most = _at_most(case, group) if kind == "loss" else packets
    if most is None or most > packets:
        says = f"at least {says}" + ("" if most is None else f" (at most {most:,})")
    return finding(
        case,
        kind,
        Place(
            from_tap=tap,
            direction=None if hidden or parted else "after the tap",
            host=receiver,
        ),
        could,
        says,
        "look at the drop counters of the receiving NIC and host"
        if link
        else LAST_SWITCH
        if may_be_incast(group)
        else "capture at the receiver as well: it separates loss from delay, and the network from "
        "the host",
        seen=seen,
        severity="note" if link and rare and (packets < FEW or cheap(group)) else None,
        details={AT_MOST: most} if most is not None and most > packets else UNSET,
    )


def losses_of_unpaired(case: Case, known: Known) -> Iterator[Finding]:
    """Losses that NAKs prove whose queue pair was unknown, at least when they came."""
    troubles, early = case.measuring.troubles, case.measuring.tracker.flows["early_naks"]
    naks: dict[tuple[str, str], dict[int, int]] = {}
    for g in troubles.flows(NAK_SENT):
        if early[g] and g not in case.likely_peers:
            naks.setdefault((case.flows[g].dst, case.flows[g].src), {})[g] = int(early[g])
    for (src, dst), carriers in sorted(naks.items()):
        seen = list(troubles.by_flow(NAK_SENT, carriers).values())
        span = span_of(seen)
        of_hosts = [flow for flow in case.flows if (flow.src, flow.dst) == (src, dst)]
        senders = [
            flow
            for flow in of_hosts
            if flow.request_packets and case.peers.get(flow.id, -1) in (-1, *carriers)
        ]
        lates = [trouble for flow in senders if (trouble := troubles.of(flow.id, LATE))]
        packets = sum(carriers.values()) - sum(trouble.packets for trouble in lates)
        explained = any(known.explains(LOSS_CAUSES, flow.id, *span) for flow in senders)
        if packets <= 0 or explained:
            continue
        resent = [trouble for flow in senders if (trouble := troubles.of(flow.id, RESENT))]
        seen_packets = sum(flow.data_packets for flow in of_hosts)
        could = max(seen_packets, packets)
        how_many = packets_of(packets, could) if seen_packets else counted(packets, "packet")
        yield finding(
            case,
            "loss",
            Place(host=dst),
            could,
            f"at least {how_many} from {printable(src)} to {printable(dst)} are"
            f" lost or late; which queue pairs sent them is unknown",
            "capture at the receiver as well: it separates loss from delay, and the network from "
            "the host",
            hits={trouble.flow: trouble.packets for trouble in resent or seen},
            span=span,
            evidence=frames(case, seen),
            packets=packets,
        )


def _at_most(case: Case, group: list[Flow]) -> int | None:
    """Most packets that may be lost after the tap: a sender that goes back N retransmits what
    followed a lost packet, lost or not. None where a sender ended without an answer to its last
    packets."""
    if any(death_of(case, flow) for flow in group):
        return None
    resent = (case.measuring.troubles.of(flow.id, RESENT) for flow in group)
    return sum(trouble.packets for trouble in resent if trouble is not None)


def losses_of_ended(case: Case, _known: Known) -> Iterator[Finding]:
    """Packets of ended flows that a retransmission replaced, or that were lost between taps.

    PSNs that were never seen are left out: a capture may have missed them.
    """
    ended = case.ended
    lost = ended.recovered_packets + ended.lost_between_taps
    if not lost or ended.first_time_ns is None or ended.last_time_ns is None:
        return
    could = max(ended.request_packets + ended.response_packets + ended.recovered_packets, lost)
    gone = counted(ended.flows, "flow")
    advice = "analyze with a longer --idle-after, or record the packets and analyze the capture:"
    if case.measuring.departed is not None:
        advice = "analyze parts of the capture with --filter 'ip.addr == 10.0.0.0/28':"
    yield finding(
        case,
        "loss",
        Place(),
        could,
        f"{packets_of(lost, could)} of {gone} that were idle and were removed from memory are lost",
        f"{advice} it names the flows and the place",
        span=(ended.first_time_ns, ended.last_time_ns),
        severity="warning",
        until_ns=ended.last_time_ns,
        packets=lost,
    )


FINDERS = (
    Finder(
        hop_losses,
        ("loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down", "incast"),
    ),
    Finder(losses_before, ("loss",), after=("hop_losses", "retired_values", "hop_moves")),
    Finder(losses_of_ended, ("loss",)),
    Finder(
        losses_after,
        ("loss", "reordering"),
        LOSS_CAUSES,
        after=("late_before", "fatal_naks", "receivers_not_ready"),
    ),
    Finder(losses_of_unpaired, ("loss",), LOSS_CAUSES, after=("losses_after",)),
)
