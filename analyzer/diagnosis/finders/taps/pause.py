"""PFC and global pause frames at a tap."""

from __future__ import annotations

from collections.abc import Iterator

from ....results.captures import CaptureSummary, Pause, TapSummary
from ....results.diagnosis import Finding, Place, Severity
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, percent

WORTH_A_WARNING = 0.01
"""Share of the time paused, below which pauses are a note: lossless classes pause for moments."""
STORM = 0.5


def pauses(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per tap and priority that was told to pause."""
    for capture in case.captures:
        for tap in capture.taps:
            for pause in tap.pauses:
                if pause.frames > pause.resume_frames:
                    yield _finding(case, capture, tap, pause)


def _finding(case: Case, capture: CaptureSummary, tap: TapSummary, pause: Pause) -> Finding:
    first, last = capture.first_time_ns or case.first_ns, capture.last_time_ns or case.last_ns
    share = (
        pause.paused_ns / (last - first) if pause.paused_ns is not None and last > first else None
    )
    what = "link" if pause.priority is None else f"priority {pause.priority}"
    stops = pause.frames - pause.resume_frames
    time = (
        "time unknown (--link-rate)" if share is None else f"{percent(min(share, 1))} of the time"
    )
    severity: Severity = "warning"
    if share is not None and share < WORTH_A_WARNING:
        severity = "note"
    elif share is not None and share >= STORM:
        severity = "critical"
    return finding(
        case,
        "pause",
        Place(to_tap=tap.name),
        {},
        tap.frames,
        (first, last),
        f"the {what} at {printable(tap.name)} is paused by {counted(stops, 'frame')}, {time}",
        "find the receiver that sends pause frames: its buffers are full",
        confidence="proven",
        severity=severity,
        costs=False,
        packets=stops,
    )
