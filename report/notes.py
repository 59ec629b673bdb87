"""Notes in words: findings, events, single packets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET

from ..analyzer.results.analysis import Analysis
from ..analyzer.results.base import Event
from ..analyzer.results.diagnosis import LOST_AGAIN, SEVERITIES, Diagnosis, Finding, Place, Severity
from ..analyzer.track import batch as verdicts
from ..analyzer.wire.bth import PSN_HALF, PSN_MASK
from ..analyzer.words import printable, utc
from . import human
from .human import counted

# Sentences of the diagnosis.

NO_CHECK = "No check covers this traffic."


def first_ns(analysis: Analysis) -> int:
    """Time of the first RoCE packet, from which sentences of findings count."""
    times = [analysis.left.first_time_ns, *(flow.first_time_ns for flow in analysis.flows)]
    return min((time for time in times if time is not None), default=analysis.series.start_ns)


def captured(analysis: Analysis) -> str:
    """`captured 2026-11-21 14:03:07.412 to 14:03:09.630 UTC`, by the clocks of the captures.

    Empty without a frame.
    """
    begin, end = captured_ns(analysis)
    return "" if begin is None or end is None else f"captured {utc_span(begin, end)}"


def captured_ns(analysis: Analysis) -> tuple[int | None, int | None]:
    """First and last frame of all captures; None without a frame."""
    firsts = [c.first_time_ns for c in analysis.captures if c.first_time_ns is not None]
    lasts = [c.last_time_ns for c in analysis.captures if c.last_time_ns is not None]
    return min(firsts, default=None), max(lasts, default=None)


def utc_span(from_ns: int, until_ns: int | None, digits: int | None = None) -> str:
    """`2026-11-21 14:03:07.412 to 14:03:09.630 UTC`; the second date only if it is another one.

    until_ns: None is "the end". digits of the seconds: default as many as the span needs.
    """
    if digits is None:
        length = 0 if until_ns is None else until_ns - from_ns
        digits = 3 if length >= 10_000_000 else 6 if length >= 10_000 else 9
    begin = utc(from_ns, digits)
    end = None if until_ns is None else utc(until_ns, digits)
    if begin is None or (until_ns is not None and end is None):
        return "at times outside the years 1 to 9999"
    if end is None:
        return f"{' '.join(begin)} UTC to the end"
    if begin == end:
        return f"{' '.join(begin)} UTC"
    return f"{' '.join(begin)} to {end[1] if begin[0] == end[0] else ' '.join(end)} UTC"


def onset(finding: Finding, begin_ns: int) -> str:
    """`onset 14:03:08.412 UTC`, with the date if it is not that of `begin_ns`.

    Empty if the fault may be there since `begin_ns`, the first packet.
    """
    moment, begin = utc(finding.from_ns, 3), utc(begin_ns, 3)
    if moment is None or finding.from_ns - finding.onset_uncertainty_ns <= begin_ns:
        return ""
    day = "" if begin is not None and begin[0] == moment[0] else f"{moment[0]} "
    return f"onset {day}{moment[1]} UTC"


def heading(diagnosis: Diagnosis) -> str:
    """`1 critical, 2 warnings, 1 note`; `no finding` without findings."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    words = {"critical": "critical", "warning": "warnings", "note": "notes"}
    parts = [counted(counts[s], s, words[s]) for s in SEVERITIES if counts[s]]
    return ", ".join(parts) or "no finding"


def sentence(finding: Finding, begin_ns: int | None = None) -> str:
    """The finding and its next step; with the time of the first packet, also its onset in UTC."""
    text = printable(finding.sentence).rstrip(".")
    step = printable(finding.next_step).rstrip(".")
    since = "" if begin_ns is None else onset(finding, begin_ns)
    return "; ".join(filter(None, (text, since, f"next: {step}" if step else "")))


def healthy(diagnosis: Diagnosis) -> list[str]:
    """The checks that passed."""
    return [printable(text).rstrip(".") for text in diagnosis.healthy]


def passed(diagnosis: Diagnosis) -> str:
    """The heading of the checks that passed: what was not read may be ill."""
    return "healthy" if diagnosis.complete else "healthy in the part that was read"


def lost_again(diagnosis: Diagnosis) -> int:
    """Losses that the findings count besides: columns of flows count each PSN once."""
    details = [finding.details for finding in diagnosis.findings]
    return sum(int(detail.get(LOST_AGAIN, 0)) for detail in details if detail is not UNSET)


def place(where: Place, short: Mapping[str, str] | None = None) -> str:
    """The place in a few words: the device, the two taps, a host and its queue pair, a capture.

    short: short names of taps.
    """
    taps = short or {}
    near, far = (tap and taps.get(tap, tap) for tap in (where.from_tap, where.to_tap))
    named = where.device or where.host or where.capture
    if named and where.dest_qp is not None:
        named += f" QP 0x{where.dest_qp:06x}"
    if not named and near and far:
        named = f"{near} > {far}"
    if not named and near:
        named = f"after {near}"
    if not named and far:
        named = f"before {far}"
    implied = (near or far) and where.direction in ("before the tap", "after the tap")
    if where.direction and not implied:
        named = f"{named}, {where.direction}" if named else where.direction
    return printable(named or "")


def reaches(diagnosis: Diagnosis, severity: Severity) -> bool:
    """Whether a finding is of this severity or worse."""
    worst = SEVERITIES.index(severity)
    return any(SEVERITIES.index(finding.severity) <= worst for finding in diagnosis.findings)


# Event kinds and texts on the screens.

_WORDS = {
    "nak": "NAK",
    "rnr_nak": "RNR NAK",
    "sequence_restart": "PSN restart",
    "cm": "CM message",
    "dscp": "DSCP change",
    "mrc_nack": "MRC NACK",
    "ev_retired": "EV retired",
    "ev_returned": "EV returned",
    "plane_down": "plane down",
    "plane_up": "plane up",
}
_PLANE = re.compile(r" of plane (\S+)")


def kind_name(kind: str) -> str:
    """The name of one event of a kind."""
    return _WORDS.get(kind, kind.replace("_", " "))


def counted_kind(count: int, kind: str) -> str:
    """`1 NAK`, `81 NAKs`; kinds such as `EV retired` have no plural."""
    name = kind_name(kind)
    plural = name if kind in ("ev_retired", "ev_returned", "plane_down", "plane_up") else f"{name}s"
    return f"{count:,} {name if count == 1 else plural}"


def event_text(event: Event, short: bool = False, room: int | None = None) -> str:
    """The text of an event, without the name of its kind.

    short: without the addresses of the flow. A text longer than `room` is shortened: first the
    addresses, then the common part of plane names and the note that a cause is inferred.
    """
    text = _text(event, short)
    if room is None or len(text) <= room:
        return text
    text = text if short else _text(event, True)
    if len(text) > room:
        text = _PLANE.sub(_ending, text).replace(": EV ", ": ").replace("(inferred: ", "(")
    return text


def _ending(plane: re.Match[str]) -> str:
    """The digits of `fcbb:bb00:0200` that distinguish planes."""
    _, colon, last = plane[1].rpartition(":")
    return f" on {'…' if colon else ''}{last}"


def _text(event: Event, short: bool) -> str:
    where, colon, what = event.text.partition(": ")
    what = what.removeprefix(f"{kind_name(event.kind)}, ")
    if event.kind.startswith("ev_"):
        what = (
            what.replace("entropy value", "EV").replace(" retired", "").replace(" used again", "")
        )
    if short:
        where, what = (
            where.rpartition(" QP ")[2],
            what.replace("retransmits from", "from"),
        )
    return f"{where}{colon}{what}"


# Notes on single packets: what the tracker found, in words.


class Sight(NamedTuple):
    """One record of `analyzer.track.references.REFERENCE`."""

    due: int
    extent: int
    late_ns: int
    gap: int
    other: int
    since_ns: int
    hop: int


def psn_steps(psn: int, due: int) -> int:
    """How far a PSN is ahead of the expected one; negative if it is behind."""
    return ((psn - due + PSN_HALF) & PSN_MASK) - PSN_HALF


def psn_note(kind: int, psn: int, sight: Sight, tap: str) -> str:
    """A note on the PSN order of a packet; empty for the expected PSN. tap: printable."""
    if kind == verdicts.AHEAD:
        return f"gap: {psn_steps(psn, sight.due)} missing" if sight.due >= 0 else "gap"
    if kind == verdicts.REORDERED:
        note = f"late by {-psn_steps(psn, sight.due)}" if sight.due >= 0 else "late"
        if sight.extent >= 0:
            note += f", extent {sight.extent}, {human.duration(sight.late_ns)}"
        return note
    if kind == verdicts.TAP_COPY:
        return f"copy at {tap}"
    return _NOTES.get(kind, "")


_NOTES = {
    verdicts.RECOVERED: "retransmitted, first copy lost",
    verdicts.RETRANSMITTED: "retransmitted, first copy seen",
    verdicts.DUPLICATE: "duplicated by the network",
    verdicts.MIRROR_DUPLICATE: "duplicated by the mirror",
    verdicts.OVERTAKEN: "first copy, late: already retransmitted",
    verdicts.RESTARTED: "PSN sequence restarts",
}
