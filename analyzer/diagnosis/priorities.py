"""Priorities of packets: which of them a pause of one priority can hold."""

from __future__ import annotations

from ..results.flow import Flow
from .case import Case

ALL = frozenset(range(8))


def usual(dscp: int) -> int:
    """The priority of a DSCP where switches have no other mapping: its class selector."""
    return dscp >> 3


def priorities_of(case: Case, flow: Flow) -> frozenset[int]:
    """Priorities that packets of a flow may have in flight.

    A VLAN tag has the priority (PCP), at whatever tap. Without a tag, and with PCP 0, where
    switches may trust the DSCP, it follows from the DSCP. Flows of CNPs only: any.
    """
    tags, untagged = case.measuring.congestion.tags(flow.id)
    if untagged or 0 in tags:
        dscps = flow.congestion.dscp
        known = case.dscp_priority or {}
        tags |= {known.get(dscp, usual(dscp)) for dscp in dscps}
    return frozenset(tags) if tags else ALL


def unmapped(case: Case) -> list[int]:
    """DSCPs of packets without their own priority, of which no option shows the priority."""
    untagged = [flow for flow in case.flows if case.measuring.congestion.tags(flow.id)[1]]
    seen = {dscp for flow in untagged for dscp in flow.congestion.dscp}
    return sorted(seen - (case.dscp_priority or {}).keys())
