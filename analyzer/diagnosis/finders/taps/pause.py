"""PFC and global pause frames at a tap."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from ....results.captures import CaptureSummary, Pause, TapSummary
from ....results.diagnosis import Evidence, Finding, Place, Severity
from ...case import Case
from ...finding import finding
from ...interval import EXPECTED
from ...known import PAUSED_NS, PRIORITY, Known
from ...pausing import Span, made_by, spans_of
from ...priorities import priorities_of
from ...words import counted, percent
from ..hops.delays import long_delays, queue_limit
from ..hops.groups import HopGroup, hits_by_flow
from ..places import called

WORTH_A_WARNING = 0.01
"""Share of the time paused, below which pauses are a note: lossless classes pause for moments."""
STORM = 0.5


def pauses(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per tap and priority that was told to pause."""
    for capture in case.captures:
        for tap in capture.taps:
            for pause in tap.pauses:
                if pause.first_time_ns is not None and pause.last_time_ns is not None:
                    span = pause.first_time_ns, pause.last_time_ns
                    yield _finding(case, capture, tap, pause, span)


def _held(case: Case, tap: TapSummary, pause: Pause, span: Span) -> dict[int, int]:
    """Packets, by flow, of the flows that wait on the way to this link while it is paused."""
    p99 = long_delays(case)
    if case.ways is None or not p99:
        return {}
    limit, spans = queue_limit(p99), spans_of(pause) or [span]
    index = case.registry.tap_names.index(tap.name)
    held: dict[int, int] = {}
    for way in case.ways.hops:
        if way.to_tap != index or (way.from_tap, way.to_tap) not in p99:
            continue
        group, width = HopGroup(case.ways, [way]), case.ways.window_ns
        if any(made_by(spans, q, width, group.wait(q)) for q in group.queues(limit)):
            slow = way.passed[way.passed["delay_max"] - way.whole["delay_min"] >= limit]
            for flow, packets in hits_by_flow(slow["flow"], slow["packets"]).items():
                if _holds(case, pause, flow):
                    held[flow] = held.get(flow, 0) + packets
    return held


def _holds(case: Case, pause: Pause, flow: int) -> bool:
    """Whether packets of a flow may have the priority of the pause."""
    return pause.priority is None or pause.priority in priorities_of(case, case.flows[flow])


def _frames(tap: TapSummary, pause: Pause, span: Span) -> list[Evidence]:
    """The first and the last frame that pause."""
    numbers = pause.first_frame_number, pause.last_frame_number
    found = [
        Evidence(tap.name, number, time)
        for number, time in zip(numbers, span, strict=True)
        if number is not None
    ]
    return found[:1] if numbers[0] == numbers[1] else found


def _details(pause: Pause) -> dict[str, str | int | float]:
    told: dict[str, str | int | float] = {}
    if pause.paused_ns is not None:
        told[PAUSED_NS] = pause.paused_ns
    if pause.priority is not None:
        told[PRIORITY] = pause.priority
    return told


def _finding(
    case: Case, capture: CaptureSummary, tap: TapSummary, pause: Pause, span: tuple[int, int]
) -> Finding:
    first, last = capture.first_time_ns or case.first_ns, capture.last_time_ns or case.last_ns
    share = (
        pause.paused_ns / (last - first) if pause.paused_ns is not None and last > first else None
    )
    what = "the link" if pause.priority is None else f"priority {pause.priority}"
    stops = pause.frames - pause.resume_frames
    time = (
        "time unknown (--link-rate)" if share is None else f"{percent(min(share, 1))} of the time"
    )
    pace = (span[1] - span[0]) / max(stops - 1, 1)
    severity: Severity = "warning"
    if share is not None and share < WORTH_A_WARNING:
        severity = "note"
    elif share is not None and share >= STORM:
        severity = "critical"
    where = called(case, tap.name, "first")
    return finding(
        case,
        "pause",
        Place(to_tap=tap.name),
        tap.frames,
        f"{what} at {where} is paused by {counted(stops, 'frame')}, {time}",
        "find the receiver that sends pause frames: its buffers are full",
        hits=_held(case, tap, pause, span),
        span=span,
        confidence="proven",
        severity=severity,
        evidence=_frames(tap, pause, span),
        costs=False,
        sure_onset=True,
        packets=stops,
        details=_details(pause) or UNSET,
        until_ns=None if case.last_ns - span[1] < EXPECTED * pace else span[1],
    )
