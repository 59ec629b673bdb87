"""The diagnosis of one analysis: causes before effects, worst first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from textwrap import shorten

from ..results.diagnosis import SEVERITIES, Confidence, Diagnosis, Finding, Place
from ..words import printable
from .case import Case, priorities_of
from .finders import captures, delays, hosts, losses, marks, moves, mrc, placement
from .finders.captures import clocks_ahead_ns
from .finding import finding
from .healthy import healthy
from .known import Known, in_order
from .limits import limits
from .words import counted, number, packets_of

FINDERS = (
    *captures.FINDERS,
    *delays.FINDERS,
    *mrc.FINDERS,
    *losses.FINDERS,
    *moves.FINDERS,
    *marks.FINDERS,
    *hosts.FINDERS,
    *placement.FINDERS,
)
"""All finders; what they declare decides their order, see `in_order`."""


def diagnose(case: Case) -> Diagnosis:
    """All findings of `case`, worst first, and what was checked without a finding."""
    known = Known(
        peers={**case.likely_peers, **case.peers},
        clocks_ns=clocks_ahead_ns(case),
        priorities=lambda f: priorities_of(case, case.flows[f]),
    )
    findings: list[Finding] = []
    for finder in in_order(FINDERS):
        new = list(finder.find(case, known))
        findings += new
        for cause in new:
            known.add(cause)
    findings = known.remaining(findings)
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_ns or 0), f.from_ns))
    findings = bounded(case, findings)
    passed = healthy(case, findings)
    text = summary(case, findings, passed)
    return Diagnosis(text, findings, passed, limits(case), case.is_whole)


MOST_ALIKE = 20
"""Findings of one kind and severity that are listed one by one."""
_PLACES_NAMED = 3
_PLACES_LETTERS = 10_000

_CONFIDENCE: tuple[Confidence, ...] = ("possible", "likely", "proven")


def bounded(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """At most `MOST_ALIKE` findings of each kind and severity; worst first, as in `findings`."""
    alike: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for item in findings:
        alike[item.kind, item.severity].append(item)
    kept: list[Finding] = []
    listed: Counter[tuple[str, str]] = Counter()
    for item in findings:
        which = item.kind, item.severity
        listed[which] += 1
        if listed[which] < MOST_ALIKE or len(alike[which]) == MOST_ALIKE:
            kept.append(item)
        elif listed[which] == MOST_ALIKE:
            kept.append(_together(case, alike[which][MOST_ALIKE - 1 :]))
    return kept


def _together(case: Case, alike: Sequence[Finding]) -> Finding:
    """One finding for several of one kind and severity."""
    hits = {flow: 0 for item in alike for flow in item.flows}
    for item in alike:
        for victim in item.affected:
            hits[victim.flow] += victim.packets
    ends = [item.until_ns for item in alike]
    last = case.last_ns if None in ends else max(end for end in ends if end is not None)
    packets, of = sum(item.packets for item in alike), sum(item.of_packets for item in alike)
    places = [_place_in_words(item.place) for item in alike]
    worst = ", ".join(printable(place) for place in places[:_PLACES_NAMED])
    left = len(alike) - _PLACES_NAMED
    and_more = f" and {number(left)} more" if left > 0 else ""
    first = alike[0]
    return finding(
        case,
        first.kind,
        Place(),
        of,
        f"{first.kind} at {number(len(alike))} more places ({worst}{and_more}):"
        f" {packets_of(packets, of)}",
        first.next_step if len({item.next_step for item in alike}) == 1 else _LOOK_FOR_MORE,
        hits=hits,
        span=(min(item.from_ns for item in alike), last),
        confidence=min((item.confidence for item in alike), key=_CONFIDENCE.index),
        evidence=[frame for item in alike for frame in item.evidence[:1]],
        severity=first.severity,
        until_ns=None if None in ends else last,
        costs=any(item.cost_ns is None or item.cost_ns for item in alike),
        packets=packets,
        details={
            "findings": len(alike),
            "places": shorten("; ".join(places), _PLACES_LETTERS, placeholder="; ..."),
        },
    )


_LOOK_FOR_MORE = "look for what these places share: a setting, a software version, one event"


def _place_in_words(place: Place) -> str:
    """The place in a few words."""
    taps = " > ".join(filter(None, (place.from_tap, place.to_tap)))
    device = place.device or place.host or place.capture
    if taps and device:
        return f"{device}, {taps}"
    return device or taps or place.direction or "the network"


def summary(case: Case, findings: Sequence[Finding], healthy: Sequence[str]) -> str:
    """The worst finding; without a fault, what was looked at. `findings`: worst first."""
    faults = [finding for finding in findings if finding.severity != "note"]
    if faults:
        more = f" (and {counted(len(faults) - 1, 'further fault')})" if len(faults) > 1 else ""
        return faults[0].sentence + more
    packets = sum(flow.packets for flow in case.flows) + case.ended.packets
    if not packets:
        return "No RoCE packets: nothing was checked"
    seen = f"{counted(packets, 'packet')} of {counted(case.queue_pairs, 'queue pair')}"
    if not healthy:
        return f"No check of loss, marks or retries applies to these {seen}"
    if case.ended.flows_in_trouble:
        gone = counted(case.ended.flows_in_trouble, "idle flow")
        return (
            f"No fault found in the listed flows; {gone} with anomalies removed from memory: {seen}"
        )
    if not case.is_whole:
        return f"No fault found in the part that was read: {seen}"
    return f"No fault found in {seen}"
