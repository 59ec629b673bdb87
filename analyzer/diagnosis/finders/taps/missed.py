"""Packets that the receiver acknowledged although the tap never saw them."""

from __future__ import annotations

from collections.abc import Iterator

from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import packets_of
from ..places import only


def missed_at_one_tap(case: Case, known: Known) -> Iterator[Finding]:
    """Capture loss of a single tap; with several, other taps prove it."""
    if case.measuring.many_taps:
        return
    hits = {f.id: n for f in case.flows if (n := f.capture_loss_suspected_packets)}
    if not hits:
        return
    flows = [case.flows[f] for f in hits]
    tap = only(tap for flow in flows for tap in flow.taps)
    packets = sum(hits.values())
    could = packets + sum(flow.request_packets + flow.response_packets for flow in case.flows)
    yield finding(
        case,
        "capture-loss",
        Place(capture=tap),
        hits,
        could,
        (min(flow.first_time_ns for flow in flows), max(flow.last_time_ns for flow in flows)),
        f"the capture {printable(tap or '')} missed {packets_of(packets, could)}: they were"
        " acknowledged and never retransmitted",
        "capture with a larger buffer or a shorter snap length",
        confidence="likely",
        severity="warning",
        costs=False,
    )
