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
    tap = only(tap for f in hits for tap in case.flows[f].taps)
    packets = sum(hits.values())
    could = packets + sum(flow.data_packets for flow in case.flows)
    yield finding(
        case,
        "capture-loss",
        Place(capture=tap),
        could,
        f"the capture {printable(tap or '')} missed {packets_of(packets, could)}: they were"
        " acknowledged and never retransmitted",
        "capture with a larger buffer or a shorter snap length",
        hits=hits,
        severity="warning",
        costs=False,
    )
