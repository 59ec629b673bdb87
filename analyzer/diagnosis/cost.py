"""What a fault costs a flow: the time in which it made no progress."""

from __future__ import annotations

from ..results.flow import Flow


def cost_ns(flow: Flow) -> int | None:
    """Time the flow lost to retransmission and silence; None where the capture does not show it.

    The sum of all waits of its recovery: from a gap to its NAK, from a NAK to the retransmission,
    and silence before a retransmission without a NAK (timeout). They follow one another, so the sum
    is a time; at most the flow's duration. The time that retransmitted packets take on the wire is
    not in it.
    """
    if flow.retransmitted_packets is None:
        return None
    r = flow.recovery
    waits = [one for one in (r.gap_to_nak_ns, r.nak_to_resend_ns, r.timeout_ns) if one is not None]
    lost = sum(one.count * one.mean for one in waits)
    return min(round(lost), flow.last_time_ns - flow.first_time_ns)
