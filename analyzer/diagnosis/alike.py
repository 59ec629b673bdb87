"""Many findings of one kind: the worst stay, all others are one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from textwrap import shorten

from ..results.diagnosis import Confidence, Finding, Place
from ..words import printable
from .case import Case
from .finding import finding
from .words import number, packets_of

MOST_ALIKE = 20
"""Findings of one kind and severity that are listed one by one."""
_NAMED = 3
_PLACES_LETTERS = 10_000

_CONFIDENCE: tuple[Confidence, ...] = ("possible", "likely", "proven")


def bounded(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """At most `MOST_ALIKE` findings of each kind and severity; worst first, as in `findings`."""
    alike: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for one in findings:
        alike[one.kind, one.severity].append(one)
    kept: list[Finding] = []
    listed: Counter[tuple[str, str]] = Counter()
    for one in findings:
        which = one.kind, one.severity
        listed[which] += 1
        if listed[which] < MOST_ALIKE or len(alike[which]) == MOST_ALIKE:
            kept.append(one)
        elif listed[which] == MOST_ALIKE:
            kept.append(_together(case, alike[which][MOST_ALIKE - 1 :]))
    return kept


def _together(case: Case, found: Sequence[Finding]) -> Finding:
    """One finding for several of one kind and severity."""
    hits = {flow: 0 for one in found for flow in one.flows}
    for one in found:
        for victim in one.affected:
            hits[victim.flow] += victim.packets
    ends = [one.until_ns for one in found]
    last = case.last_ns if None in ends else max(end for end in ends if end is not None)
    packets, of = sum(one.packets for one in found), sum(one.of_packets for one in found)
    places = [_name(one.place) for one in found]
    worst = ", ".join(printable(place) for place in places[:_NAMED])
    left = len(found) - _NAMED
    and_more = f" and {number(left)} more" if left > 0 else ""
    first = found[0]
    return finding(
        case,
        first.kind,
        Place(),
        of,
        f"{first.kind} at {number(len(found))} more places ({worst}{and_more}):"
        f" {packets_of(packets, of)}",
        first.next_step if len({one.next_step for one in found}) == 1 else _NEXT,
        hits=hits,
        span=(min(one.from_ns for one in found), last),
        confidence=min((one.confidence for one in found), key=_CONFIDENCE.index),
        evidence=[frame for one in found for frame in one.evidence[:1]],
        severity=first.severity,
        until_ns=None if None in ends else last,
        costs=any(one.cost_ns is None or one.cost_ns for one in found),
        packets=packets,
        details={
            "findings": len(found),
            "places": shorten("; ".join(places), _PLACES_LETTERS, placeholder="; ..."),
        },
    )


_NEXT = "look for what these places share: a setting, a software version, one event"


def _name(place: Place) -> str:
    """The place in a few words."""
    taps = " > ".join(filter(None, (place.from_tap, place.to_tap)))
    device = place.device or place.host or place.capture
    if taps and device:
        return f"{device}, {taps}"
    return device or taps or place.direction or "the network"
