"""MRC: ports that hosts declare down, and entropy values that senders stop using."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....results.mrc import MrcRetirement
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted
from ..places import only

CAUSES = ("always_skip", "loss")
"""Causes of a retirement that show a bad path; a port down is its own finding."""


def mrc_paths(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per port of a host that is down, one for all retired entropy values."""
    if case.mrc is None:
        return
    for outage in case.mrc.outages:
        flows = [
            flow
            for flow in case.flows
            if outage.host in (flow.src, flow.dst) and flow.mrc is not UNSET
        ]
        yield finding(
            case,
            "mrc-path",
            Place(host=outage.host, device=f"port {outage.port}"),
            {flow.id: 0 for flow in flows},
            sum(flow.packets for flow in flows),
            (outage.down_time_ns, outage.up_time_ns or case.last_ns),
            f"port {outage.port} of {printable(outage.host)} is down",
            f"check the link of port {outage.port} of {printable(outage.host)} and its plane",
            confidence="proven",
            severity="warning",
            until_ns=outage.up_time_ns,
        )
    retired = [
        (flow, end)
        for flow in case.flows
        if flow.mrc is not UNSET
        for end in flow.mrc.retirements
        if end.certain and end.cause in CAUSES
    ]
    if retired:
        yield _retired(case, retired)


def _retired(case: Case, ends: list[tuple[Flow, MrcRetirement]]) -> Finding:
    hits: dict[int, int] = {}
    for flow, _ in ends:
        hits[flow.id] = hits.get(flow.id, 0) + 1
    values = {(flow.id, end.ev) for flow, end in ends}
    planes = {end.plane for _, end in ends}
    plane = only(end.plane or "" for _, end in ends) or None
    where = f"plane {printable(plane)}" if plane else f"{len(planes)} planes"
    back = [end.returned_time_ns for _, end in ends]
    until = None if None in back else max(time for time in back if time is not None)
    used = sum(
        mrc.entropy_values for f in hits if not isinstance(mrc := case.flows[f].mrc, UnsetType)
    )
    return finding(
        case,
        "mrc-path",
        Place(device=plane),
        hits,
        used,
        (min(end.retired_time_ns for _, end in ends), until or case.last_ns),
        f"senders stopped using {counted(len(values), 'entropy value')} on {where}",
        f"look for loss or congestion on {where}",
        confidence="likely",
        severity="warning",
        until_ns=until,
        packets=len(ends),
    )
