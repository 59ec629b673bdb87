"""Sentences of the diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import UNSET

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.diagnosis import (
    LOST_AGAIN,
    SEVERITIES,
    Diagnosis,
    Finding,
    Place,
    Severity,
)
from ...analyzer.words import printable
from .human import counted

NO_CHECK = "No check covers this traffic."


def first_ns(analysis: Analysis) -> int:
    """Time of the first RoCE packet, from which sentences of findings count."""
    times = [analysis.left.first_time_ns, *(flow.first_time_ns for flow in analysis.flows)]
    return min((time for time in times if time is not None), default=analysis.series.start_ns)


def heading(diagnosis: Diagnosis) -> str:
    """`1 critical, 2 warnings, 1 note`; `no finding` without findings."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    words = {"critical": "critical", "warning": "warnings", "note": "notes"}
    parts = [counted(counts[s], s, words[s]) for s in SEVERITIES if counts[s]]
    return ", ".join(parts) or "no finding"


def sentence(finding: Finding) -> str:
    """The finding and its next step."""
    text = printable(finding.sentence).rstrip(".")
    step = printable(finding.next_step).rstrip(".")
    return f"{text}; next: {step}" if step else text


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
