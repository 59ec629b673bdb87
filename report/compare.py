"""Two analyses compared: findings that are new, worse, better or gone, and key figures.

A share is better or worse when the 95 % confidence intervals (Wilson score) of both analyses do
not overlap, a goodput when it differs by more than a tenth, the queueing of a hop when it differs
by more than a factor of two and 100 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import structs

from ..analyzer.measures.hops.vantage import short_names
from ..analyzer.results.analysis import Analysis, Hop
from ..analyzer.results.base import facts_of
from ..analyzer.results.captures import Ended
from ..analyzer.results.compare import (
    CHANGES,
    Change,
    Comparison,
    Figures,
    FindingChange,
    FlowChange,
    HopChange,
    HopFigures,
)
from ..analyzer.results.diagnosis import SEVERITIES, Finding
from ..analyzer.results.flow import Flow
from ..analyzer.statistics.shares import wilson
from ..version import VERSION
from .notes import lost_again

Number = TypeVar("Number", int, float)
Key = TypeVar("Key", bound=tuple[Any, ...])
Side = TypeVar("Side", Figures, HopFigures)
Judged: TypeAlias = tuple[list[str], list[str]]
Verdict = Literal["worse", "better", "unchanged"]


def _shares(kind: type) -> tuple[str, ...]:
    """The figures that are judged as shares of the packets, where more is worse; losses first."""
    names = [fact.name for fact in facts_of(kind) if fact.is_trouble]
    return tuple(sorted(names, key=lambda name: not name.startswith("lost_")))


SHARES, HOP_SHARES = _shares(Figures), _shares(HopFigures)
QUEUEING = "queueing_p99_ns"
HOP_ORDER: tuple[Change, ...] = ("worse", "better", "new", "gone", "unchanged")
_QUEUEING_FACTOR, _QUEUEING_LEAST_NS = 2, 100_000
_LEAST_PACKETS = 200
"""From this number of packets a p99 is more than one or two of them."""
GOODPUT = "goodput_bits_per_second"
_GOODPUT_MARGIN = 0.1


def compare(before: Analysis, after: Analysis, names: tuple[str, str]) -> Comparison:
    """What changed from `before` to `after`; `names` are those of the two inputs."""
    findings = list(_findings(before.diagnosis.findings, after.diagnosis.findings))
    findings.sort(key=lambda f: (CHANGES.index(f.change), _severity(f)))
    flows = list(_flows(before.flows, after.flows))
    flows.sort(key=lambda f: (CHANGES.index(f.change), f.src, f.dst, f.dest_qp))
    first, second = (_all_figures(analysis) for analysis in (before, after))
    worse, better = _judged(first, second)
    serious = [f.change for f in findings if _severity(f) < SEVERITIES.index("note")]
    # Goodput also depends on what was offered: it decides only where no finding does.
    shares_worse = any(name != GOODPUT for name in worse)
    change: Verdict = "unchanged"
    if shares_worse or "new" in serious or "worse" in serious:
        change = "worse"
    elif "gone" in serious or "better" in serious:
        change = "better"
    elif worse or better:
        change = "worse" if worse else "better"
    return Comparison(
        version=VERSION,
        before=names[0],
        after=names[1],
        change=change,
        findings=findings,
        worse=worse,
        better=better,
        figures_before=first,
        figures_after=second,
        hops=sorted(
            _hops(before.hops, after.hops),
            key=lambda hop: (HOP_ORDER.index(hop.change), hop.from_tap, hop.to_tap or ""),
        ),
        flows=flows,
        warnings=[
            f"{name}: {text}"
            for name, analysis in zip(names, (before, after), strict=True)
            for text in analysis.warnings
        ],
    )


def _severity(change: FindingChange) -> int:
    """Rank of the worse severity of both analyses; 0 is critical."""
    return min(SEVERITIES.index(f.severity) for f in (change.before, change.after) if f)


def _findings(before: Sequence[Finding], after: Sequence[Finding]) -> Iterable[FindingChange]:
    left = list(before)
    for finding in after:
        known = _same(finding, left)
        if known is None:
            yield FindingChange("new", None, finding)
        else:
            left.remove(known)
            yield FindingChange(_finding_change(known, finding), known, finding)
    for finding in left:
        yield FindingChange("gone", finding, None)


def _same(finding: Finding, among: Sequence[Finding]) -> Finding | None:
    """The finding of the same kind at the same place; else at the same device and direction."""
    kinds = [f for f in among if f.kind == finding.kind]
    exact = [f for f in kinds if f.place == finding.place]
    at = finding.place
    device = at.device, at.direction
    near = [f for f in kinds if at.device and (f.place.device, f.place.direction) == device]
    return next(iter(exact + near), None)


def _finding_change(before: Finding, after: Finding) -> Change:
    ranks = SEVERITIES.index(before.severity), SEVERITIES.index(after.severity)
    if ranks[0] != ranks[1]:
        return "worse" if ranks[1] < ranks[0] else "better"
    return share_change(before.packets, before.of_packets, after.packets, after.of_packets)


def share_change(before: int, of_before: int, after: int, of_after: int) -> Verdict:
    """Whether a share of bad packets is worse, better or unchanged."""
    low, high = wilson(min(before, of_before), of_before)
    after_low, after_high = wilson(min(after, of_after), of_after)
    return "worse" if after_low > high else "better" if after_high < low else "unchanged"


def _judged(before: Figures, after: Figures) -> Judged:
    """Names of the figures that are worse, and of those that are better."""
    worse, better = _judged_shares(SHARES, before, after)
    was, now = before.goodput_bits_per_second, after.goodput_bits_per_second
    if was is not None and now is not None:
        if now < was * (1 - _GOODPUT_MARGIN):
            worse.append(GOODPUT)
        elif now > was * (1 + _GOODPUT_MARGIN):
            better.append(GOODPUT)
    return worse, better


def _judged_shares(names: Sequence[str], before: Side, after: Side) -> Judged:
    found: dict[str, list[str]] = {"worse": [], "better": [], "unchanged": []}
    for name in names:
        counts = getattr(before, name), getattr(after, name)
        if None not in counts:
            change = share_change(counts[0], before.packets, counts[1], after.packets)
            found[change].append(name)
    return found["worse"], found["better"]


def _changes(
    before: Mapping[Key, Side], after: Mapping[Key, Side], judged: Callable[[Side, Side], Judged]
) -> Iterable[tuple[Key, Change, Judged, tuple[Side | None, Side | None]]]:
    """Every key of either analysis; one that is new or gone is neither worse nor better."""
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        found: Judged = [], []
        change: Change = "new" if was is None else "gone"
        if was is not None and now is not None:
            worse, better = found = judged(was, now)
            change = "worse" if worse else "better" if better else "unchanged"
        yield key, change, found, (was, now)


def _hops(before: Sequence[Hop], after: Sequence[Hop]) -> Iterable[HopChange]:
    """The hops of both analyses."""
    first, second = _by_taps(before), _by_taps(after)
    was = {taps: _hop_figures(hop) for taps, hop in first.items()}
    now = {taps: _hop_figures(hop) for taps, hop in second.items()}
    for taps, change, judged, sides in _changes(was, now, _judged_hop):
        yield HopChange(change, *taps, (first | second)[taps].device, *judged, *sides)


def _by_taps(hops: Sequence[Hop]) -> dict[tuple[str, str | None], Hop]:
    """Hops by the short names of their taps, which runs in files of other names share."""
    taps = list({tap: None for hop in hops for tap in (hop.from_tap, hop.to_tap) if tap})
    short = dict(zip(taps, short_names(taps), strict=True))
    return {(short[hop.from_tap], hop.to_tap and short[hop.to_tap]): hop for hop in hops}


def _hop_figures(hop: Hop) -> HopFigures:
    return HopFigures(
        packets=hop.packets,
        lost_packets=hop.lost_packets,
        ecn_marked_packets=hop.ce_marked_packets,
        reordered_packets=hop.reordered_packets,
        duplicate_packets=hop.duplicate_packets,
        queueing_p99_ns=None if hop.queueing_ns is None else hop.queueing_ns.p99,
    )


def _judged_hop(before: HopFigures, after: HopFigures) -> Judged:
    """Names of the figures that are worse, and of those that are better."""
    worse, better = _judged_shares(HOP_SHARES, before, after)
    was, now = before.queueing_p99_ns, after.queueing_p99_ns
    if was is not None and now is not None:
        low, high = min(was, now), max(was, now)
        changed = high > _QUEUEING_FACTOR * low and high - low > _QUEUEING_LEAST_NS
        if changed and min(before.packets, after.packets) >= _LEAST_PACKETS:
            (worse if now > was else better).append(QUEUEING)
    return worse, better


def _flows(before: Sequence[Flow], after: Sequence[Flow]) -> Iterable[FlowChange]:
    """The flows of both analyses; a queue pair that was used twice is one flow here."""
    first = {key: _figures(flows) for key, flows in _by_key(before).items()}
    second = {key: _figures(flows) for key, flows in _by_key(after).items()}
    for key, change, judged, sides in _changes(first, second, _judged):
        yield FlowChange(change, *key, *judged, *sides)


def _by_key(flows: Sequence[Flow]) -> dict[tuple[str, str, int], list[Flow]]:
    found: dict[tuple[str, str, int], list[Flow]] = {}
    for flow in flows:
        found.setdefault((flow.src, flow.dst, flow.dest_qp), []).append(flow)
    return found


def _all_figures(analysis: Analysis) -> Figures:
    """The figures of all flows; the diagnosis knows how many retransmissions were lost."""
    figures = _figures(analysis.flows, analysis.left)
    again = lost_again(analysis.diagnosis)
    known = again or (None if figures.retransmitted_packets else 0)
    return structs.replace(figures, lost_retransmissions=known)


def _figures(flows: Sequence[Flow], left: Ended | None = None) -> Figures:
    """left: sums of further flows."""
    left = left or Ended()
    lost = left.recovered_packets + left.missing_packets + left.lost_between_taps
    late = left.reordered_packets + left.reordered_between_taps
    marked = left.ecn_marked_packets + left.marked_between_taps
    return Figures(
        packets=sum(flow.packets for flow in flows) + left.packets,
        lost_packets=_sum(flows, _lost, lost),
        reordered_packets=_sum(flows, _reordered, late),
        retransmitted_packets=_sum(
            flows, lambda f: f.retransmitted_packets, left.retransmitted_packets
        ),
        duplicate_packets=_sum(flows, lambda f: f.duplicate_packets, left.duplicate_packets),
        ecn_marked_packets=sum(flow.ecn_marked_packets for flow in flows) + marked,
        goodput_bits_per_second=_goodput(flows),
    )


def _goodput(flows: Sequence[Flow]) -> float | None:
    """Acknowledged payload of these flows over the time from their first to their last packet: the
    sum of their own rates would exceed the wire rate where they send one after the other."""
    known = [
        (rate, flow.first_time_ns, flow.last_time_ns)
        for flow in flows
        if (rate := flow.goodput_bits_per_second) is not None
    ]
    if len(known) < 2:
        return known[0][0] if known else None
    duration = max(last for _, _, last in known) - min(first for _, first, _ in known)
    payload = sum(rate * (last - first) for rate, first, last in known)
    return payload / duration if duration else None


def _lost(flow: Flow) -> int | None:
    """Lost packets of a flow, without those that only its capture missed."""
    if flow.recovered_packets is None or flow.missing_packets is None:
        return flow.lost_between_taps or None
    not_captured = flow.capture_loss_suspected_packets or 0
    before_the_tap = flow.recovered_packets + flow.missing_packets - not_captured
    return before_the_tap + (flow.lost_between_taps or 0)


def _reordered(flow: Flow) -> int | None:
    """Late packets of a flow: at its first tap, or on the way to later taps."""
    if flow.reordered_packets is None:
        return None
    return flow.reordered_packets + (flow.reordered_between_taps or 0)


def _sum(
    flows: Sequence[Flow], value: Callable[[Flow], Number | None], left: int = 0
) -> Number | None:
    """Sum of the known values, and of `left`; None if none is known."""
    known = [v for flow in flows if (v := value(flow)) is not None]
    return sum(known[1:], known[0]) + left if known else left or None
