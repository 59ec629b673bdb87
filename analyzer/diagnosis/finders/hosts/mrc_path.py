"""MRC: ports that hosts declare down, and entropy values that senders stop using."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np
from msgspec import UNSET, UnsetType, structs

from ....results.diagnosis import Confidence, Evidence, Finding, Place
from ....results.flow import Flow
from ....results.mrc import MrcRetirement
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted
from ..hops.groups import hits_by_flow
from ..hops.losses import loss_evidence
from ..hops.ports import of_ports
from ..places import only

CAUSES = ("always_skip", "loss")
"""Causes of a retirement that show a bad path; a port down is its own finding."""


def mrc_ports(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per port of a host that is down, with what the last hop to it loses meanwhile.

    Where that is known, only the flows that lose packets there are hit; the others are affected.
    """
    if case.mrc is None:
        return
    losing = of_ports(case)
    for number, outage in enumerate(case.mrc.outages):
        flows = [
            flow
            for flow in case.flows
            if outage.host in (flow.src, flow.dst) and flow.mrc is not UNSET
        ]
        hits = {flow.id: 0 for flow in flows}
        place = Place(host=outage.host, device=f"port {outage.port}")
        says, begin = f"port {outage.port} of {printable(outage.host)} is down", outage.down_time_ns
        evidence: list[Evidence] = []
        confidence: Confidence = "proven"
        if number in losing:
            group = losing[number]
            lost = group.lost()
            hits |= hits_by_flow(lost["flow"], np.ones(len(lost), np.int64))
            there = group.place(case)
            place = structs.replace(place, from_tap=there.from_tap, to_tap=there.to_tap)
            begin = min(begin, int(lost["time"][0]))
            evidence = loss_evidence(case, group)
            says += f": {group.name()} loses everything{group.way()}"
            says += f" ({counted(len(lost), 'packet')})"
            says += ", likely for this reason: no packet shows which hop leads to which port"
            confidence = "likely"
        found = finding(
            case,
            "mrc-path",
            place,
            sum(flow.packets for flow in flows),
            says,
            f"check the link of port {outage.port} of {printable(outage.host)} and its plane",
            hits=hits,
            span=(begin, outage.up_time_ns or case.last_ns),
            confidence=confidence,
            evidence=evidence,
            severity="warning",
            sure_onset=True,
            until_ns=outage.up_time_ns,
        )
        if number in losing:
            found = structs.replace(found, flows=[flow for flow in found.flows if hits[flow]])
        yield found


def retired_values(case: Case, known: Known) -> Iterator[Finding]:
    """Retired entropy values, but those that a known fault explains: one finding for those of lost
    packets, and one for those of packets that arrived."""
    retired = [
        (flow, end)
        for flow in case.flows
        if flow.mrc is not UNSET
        for end in flow.mrc.retirements
        if end.certain and end.cause in CAUSES and not _is_explained(known, flow, end)
    ]
    since = _lost_since_ns(case) if retired else {}
    late = [
        (flow, end)
        for flow, end in retired
        if end.cause == "loss"
        and (end.cause_time_ns or end.retired_time_ns) < since.get(flow.id, -inf)
    ]
    lost = [each for each in retired if each not in late]
    if lost:
        yield _retired(case, lost)
    if late:
        yield _retired(case, late, arrived=True)


def _lost_since_ns(case: Case) -> dict[int, float]:
    """By flow, when its first packet was lost as far as the taps show: inf if none was, -inf where
    packets may be lost that no tap saw."""
    if case.ways is None or case.ways.unlogged:
        return {}
    sure = {
        flow.id: inf
        for flow in case.flows
        if flow.id not in case.ways.untapped
        and flow.src not in case.partly_seen
        and not flow.missing_packets
        and not flow.recovered_packets
    }
    for hop in case.ways.hops:
        for flow, time in zip(hop.lost["flow"].tolist(), hop.lost["time"].tolist(), strict=True):
            if flow in sure:
                sure[flow] = min(sure[flow], time)
    return sure


def _is_explained(known: Known, flow: Flow, end: MrcRetirement) -> bool:
    at_ns = end.cause_time_ns or end.retired_time_ns
    return end.cause == "loss" and known.explains("mrc-path", flow.id, end.retired_time_ns, at_ns)


def _retired(case: Case, ends: list[tuple[Flow, MrcRetirement]], arrived: bool = False) -> Finding:
    """arrived: no packet was lost between the taps until the senders took one for lost."""
    hits: dict[int, int] = {}
    for flow, _ in ends:
        hits[flow.id] = hits.get(flow.id, 0) + 1
    values = {(flow.id, end.ev) for flow, end in ends}
    planes = {end.plane for _, end in ends}
    plane = only(end.plane or "" for _, end in ends) or None
    where = f"{len(planes)} planes" if None not in planes else "their paths"
    where = f"plane {printable(plane)}" if plane else where
    back = [end.returned_time_ns for _, end in ends]
    until = None if None in back else max(time for time in back if time is not None)
    used = sum(
        mrc.entropy_values for f in hits if not isinstance(mrc := case.flows[f].mrc, UnsetType)
    )
    return finding(
        case,
        "mrc-path",
        Place(device=plane),
        used,
        f"senders stopped using {counted(len(values), 'entropy value')}"
        + (f" on {where}" if None not in planes else "")
        + (", although none of their packets was lost before, between the taps" if arrived else ""),
        "look for late SACKs: busy hosts, queues; the retransmission timeout of the senders"
        if arrived
        else f"look for loss or congestion on {where}",
        hits=hits,
        span=(min(end.retired_time_ns for _, end in ends), until or case.last_ns),
        severity="warning",
        until_ns=until,
        packets=len(values),
    )
