"""MRC: ports that hosts declare down, entropy values that senders stop using, trimmed packets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

import numpy as np
from msgspec import UNSET, UnsetType, structs

from ...measures.hops.state import PACKETS_IN
from ...measures.mrc import SENT, TOLD
from ...measures.troubles import Trouble
from ...results.diagnosis import Confidence, Evidence, Finding, Kind, Place
from ...results.flow import Flow
from ...results.mrc import MrcPortOutage, MrcRetirement
from ...words import printable
from ..case import Case
from ..finding import (
    after,
    before,
    by_hosts,
    counted,
    finding,
    hosts,
    of_same_hosts,
    only,
    packets_of,
    tap_of,
)
from ..hop_groups import HopGroup, hits_by_flow, losing_groups, loss_evidence
from ..known import CLOCKS_NS, LOSSES, Finder, Known

MRC_PATH_CAUSES: Final[tuple[Kind, ...]] = (*LOSSES, "mrc-path")
"""Kinds of causes that explain such an effect in the same flows at the same time."""

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
        outage_finding = finding(
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
            outage_finding = structs.replace(
                outage_finding, flows=[flow for flow in outage_finding.flows if hits[flow]]
            )
        yield outage_finding


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
    if case.tap_hops is None or case.tap_hops.unlogged:
        return {}
    sure = {
        flow.id: inf
        for flow in case.flows
        if flow.id not in case.tap_hops.untapped
        and flow.src not in case.partly_seen
        and not flow.missing_packets
        and not flow.recovered_packets
    }
    for hop in case.tap_hops.hops:
        for flow, time in zip(hop.lost["flow"].tolist(), hop.lost["time"].tolist(), strict=True):
            if flow in sure:
                sure[flow] = min(sure[flow], time)
    return sure


def _is_explained(known: Known, flow: Flow, end: MrcRetirement) -> bool:
    at_ns = end.cause_time_ns or end.retired_time_ns
    return end.cause == "loss" and known.explains(
        MRC_PATH_CAUSES, flow.id, end.retired_time_ns, at_ns
    )


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


DECLARED_NS = 1_000_000_000
"""A host says that its port is down within this time after the first loss."""


def of_ports(case: Case) -> Mapping[int, HopGroup]:
    """By number of the port outage, the hops whose losses it explains.

    Taps do not show the port that they lead to: losses that fit several outages, or share an outage
    with those of other hops, are not explained.
    """
    outages = [] if case.mrc is None else case.mrc.outages
    fitting_groups: dict[int, list[HopGroup]] = defaultdict(list)
    ambiguous: set[int] = set()
    for group in losing_groups(case) if outages else ():
        fits = [i for i, outage in enumerate(outages) if _is_outage_of(case, outage, group)]
        for number in fits:
            fitting_groups[number].append(group)
        if len(fits) > 1:
            ambiguous.update(fits)
    return {
        number: fitting[0]
        for number, fitting in fitting_groups.items()
        if len(fitting) == 1 and number not in ambiguous
    }


def _is_outage_of(case: Case, outage: MrcPortOutage, group: HopGroup) -> bool:
    """Whether a group loses everything that comes over one path to the host, and only while its
    port is down."""
    if group.from_tap is None or group.to_tap is None:
        return False
    lost = group.lost()
    first, last = int(lost["time"][0]), int(lost["time"][-1])
    end = case.last_ns if outage.up_time_ns is None else outage.up_time_ns
    if first < outage.down_time_ns - DECLARED_NS or last > end + CLOCKS_NS:
        return False
    flows = set(lost["flow"].tolist()) | set(group.passed()["flow"].tolist())
    if any(case.flows[flow].dst != outage.host for flow in flows):
        return False
    onward = {
        flow
        for hop in group.tap_hops.hops
        if hop.from_tap == group.to_tap
        for flow in hop.passed["flow"].tolist()
    }
    if onward & flows or _passed_meanwhile(group, first, last):
        return False
    fits, others = _of_retired_values(case, outage, group)
    return not others or others < fits


def _of_retired_values(case: Case, outage: MrcPortOutage, group: HopGroup) -> tuple[int, int]:
    """Lost packets with an entropy value (source port) that their sender stops to use because the
    port is down, and with another one; of senders that stop to use some."""
    fits = others = 0
    end = case.last_ns if outage.up_time_ns is None else outage.up_time_ns
    known = group.lost()[group.lost()["frame"] > 0]
    for number in np.unique(known["flow"]).tolist():
        mrc = case.flows[number].mrc
        if not mrc:
            continue
        retired = {
            int(value.ev.split("/")[0])
            for value in mrc.retirements
            if value.cause == "port_down"
            and value.ev != "other"
            and outage.down_time_ns - DECLARED_NS <= value.retired_time_ns <= end
        }
        if retired:
            fit = np.isin(known["udp_sport"][known["flow"] == number], list(retired))
            fits += int(np.count_nonzero(fit))
            others += int(np.count_nonzero(~fit))
    return fits, others


def _passed_meanwhile(group: HopGroup, first: int, last: int) -> bool:
    """Whether the hops passed packets in windows between the first and the last loss."""
    width, origin = group.tap_hops.window_ns, group.tap_hops.origin_ns
    begin, end = -((origin - first) // width), (last - origin) // width
    return any(
        bool(np.any(hop.windows[max(begin, 0) : max(end, 0), PACKETS_IN]))
        for hop in (*group.hops, *group.beside)
        if hop.total is not None
    )


_TRIMMED, _LAST_HOP = 0, 1
"""Items of the counts of NACKs."""


def trims(case: Case, _: Known) -> Iterator[Finding]:
    """Packets that the first tap sees trimmed, and NACKs of packets that no tap saw trimmed."""
    trimmed = _trim_troubles(case, SENT)
    nacked = _trim_troubles(case, TOLD)
    between = _trimmed_between(case)
    later = {
        sender: nacked[f]._replace(packets=more)
        for f in nacked
        if (sender := case.peers.get(f)) is not None
        and (more := nacked[f].packets - between.get(sender, 0)) > 0
    }
    for f in trimmed.keys() & later.keys():
        later[f] = later[f]._replace(packets=later[f].packets - trimmed[f].packets)
    later = {f: trouble for f, trouble in later.items() if trouble.packets > 0}
    for group in by_hosts(case.flows[f] for f in trimmed):
        tap = tap_of(case, (trimmed[flow.id] for flow in group))
        place = Place(to_tap=tap, direction="before the tap", host=only(f.dst for f in group))
        yield _trim(case, place, group, trimmed, before(case, tap), "proven")
    for group in by_hosts(case.flows[f] for f in later):
        tap = tap_of(case, (later[flow.id] for flow in group))
        place = Place(from_tap=tap, direction="after the tap", host=only(f.dst for f in group))
        yield _trim(case, place, group, later, after(case, tap), "likely")
    for group in by_hosts(case.flows[f] for f in nacked if f not in case.peers):
        yield _without_data(case, group, nacked)


def _trim_troubles(case: Case, lane: int) -> dict[int, Trouble]:
    """By flow: its trimmed packets (SENT), or the NACKs of trimmed packets that it carries."""
    records = case.measuring.mrc.flows(len(case.flows))
    troubles = {}
    for f in records["trim_frame"][:, lane].nonzero()[0].tolist():
        first, last = (int(records[f"trim_{end}_ns"][f, lane]) for end in ("first", "last"))
        frame, tap = int(records["trim_frame"][f, lane]), int(records["trim_tap"][f, lane])
        of_nacks = records["nacks"][f, _TRIMMED : _LAST_HOP + 1].sum()
        packets = int(records["trimmed"][f] if lane == SENT else of_nacks)
        troubles[f] = Trouble(packets, first, last, 0, [(first, frame, tap)], f)
    return troubles


def _trimmed_between(case: Case) -> dict[int, int]:
    """Packets of each flow that are trimmed on hops between taps."""
    trimmed: dict[int, int] = {}
    for hop in () if case.tap_hops is None else case.tap_hops.hops:
        hit = hop.passed[hop.passed["trimmed"] > 0]
        for flow, packets in zip(hit["flow"].tolist(), hit["trimmed"].tolist(), strict=True):
            trimmed[flow] = trimmed.get(flow, 0) + packets
    return trimmed


def _trim(
    case: Case,
    place: Place,
    group: Sequence[Flow],
    troubles: Mapping[int, Trouble],
    where: str,
    confidence: Confidence,
) -> Finding:
    seen = [troubles[flow.id] for flow in group]
    could = sum(flow.request_packets for flow in of_same_hosts(case, group))
    packets = sum(trouble.packets for trouble in seen)
    return finding(
        case,
        "queueing",
        place,
        could,
        f"{packets_of(packets, could)} from {hosts(group)} are trimmed {where}: a queue is full",
        _step_for_nacks(case, [case.peers[flow.id] for flow in group if flow.id in case.peers]),
        hits={flow.id: troubles[flow.id].packets for flow in group},
        confidence=confidence,
        seen=seen,
    )


def _without_data(case: Case, group: Sequence[Flow], nacked: Mapping[int, Trouble]) -> Finding:
    """NACKs of packets on ways without a tap; the group are the flows of the NACKs."""
    seen = [nacked[flow.id] for flow in group]
    receiver = only(flow.src for flow in group)
    packets = counted(sum(trouble.packets for trouble in seen), "NACK")
    who = counted(len(group), "receiver") if receiver is None else printable(receiver)
    queue = finding(
        case,
        "queueing",
        Place(host=receiver),
        0,
        f"{packets} of {who} name trimmed packets that no tap saw: a queue is full",
        _step_for_nacks(case, [flow.id for flow in group]),
        seen=seen,
    )
    return structs.replace(queue, queue_pairs=len(group))


def _step_for_nacks(case: Case, tellers: Sequence[int]) -> str:
    nacks = case.measuring.mrc.flows(len(case.flows))["nacks"][tellers].sum(axis=0)
    if nacks[_LAST_HOP] and not nacks[_TRIMMED]:  # this NACK means an incast
        return "spread the senders in time: the last switch trims, its link to the host is full"
    return "find the full queue: a tap on each link of the path shows where packets are trimmed"


FINDERS = (
    Finder(mrc_ports, ("mrc-path",)),
    Finder(trims, ("queueing",), after=("slow_paths",)),
    Finder(
        retired_values,
        ("mrc-path",),
        MRC_PATH_CAUSES,
        after=("mrc_ports", "hop_moves", "hop_faults", "corrupt_packets", "fragments"),
    ),
)
