"""Losses of flows that were idle and were removed from memory: their sums are all that is known of
them."""

from __future__ import annotations

from collections.abc import Iterator

from ...results.diagnosis import Finding, Place
from ..case import Case
from ..finding import finding
from ..known import Known
from ..words import counted, packets_of


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
