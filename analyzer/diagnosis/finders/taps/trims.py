"""MRC packets that are trimmed before the first tap, or where no tap saw it: NACKs tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from ....measures.mrc import SENT, TOLD
from ....measures.troubles import Trouble
from ....results.diagnosis import Confidence, Finding, Place
from ....results.flow import Flow
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..places import after, before, only, tap_of

_TRIMMED, _LAST_HOP = 0, 1
"""Items of the counts of NACKs."""


def trims(case: Case, _: Known) -> Iterator[Finding]:
    """Packets that the first tap sees trimmed, and NACKs of packets that no tap saw trimmed."""
    trimmed = _troubles(case, SENT)
    told = _troubles(case, TOLD)
    between = _between(case)
    later = {
        sender: told[f]._replace(packets=more)
        for f in told
        if (sender := case.peers.get(f)) is not None
        and (more := told[f].packets - between.get(sender, 0)) > 0
    }
    for f in trimmed.keys() & later.keys():
        later[f] = later[f]._replace(packets=later[f].packets - trimmed[f].packets)
    later = {f: trouble for f, trouble in later.items() if trouble.packets > 0}
    for group in by_hosts(case.flows[f] for f in trimmed):
        tap = tap_of(case, (trimmed[flow.id] for flow in group))
        place = Place(to_tap=tap, direction="before the tap", host=only(f.dst for f in group))
        yield _finding(case, place, group, trimmed, before(case, tap), "proven")
    for group in by_hosts(case.flows[f] for f in later):
        tap = tap_of(case, (later[flow.id] for flow in group))
        place = Place(from_tap=tap, direction="after the tap", host=only(f.dst for f in group))
        yield _finding(case, place, group, later, after(case, tap), "likely")
    for group in by_hosts(case.flows[f] for f in told if f not in case.peers):
        yield _without_data(case, group, told)


def _troubles(case: Case, lane: int) -> dict[int, Trouble]:
    """By flow: its trimmed packets (SENT), or the NACKs of trimmed packets that it carries."""
    records = case.measuring.mrc.flows(len(case.flows))
    found = {}
    for f in records["trim_frame"][:, lane].nonzero()[0].tolist():
        first, last = (int(records[f"trim_{end}_ns"][f, lane]) for end in ("first", "last"))
        frame, tap = int(records["trim_frame"][f, lane]), int(records["trim_tap"][f, lane])
        of_nacks = records["nacks"][f, _TRIMMED : _LAST_HOP + 1].sum()
        packets = int(records["trimmed"][f] if lane == SENT else of_nacks)
        found[f] = Trouble(packets, first, last, 0, [(first, frame, tap)], f)
    return found


def _between(case: Case) -> dict[int, int]:
    """Packets of each flow that are trimmed on hops between taps."""
    found: dict[int, int] = {}
    for hop in () if case.ways is None else case.ways.hops:
        hit = hop.passed[hop.passed["trimmed"] > 0]
        for flow, packets in zip(hit["flow"].tolist(), hit["trimmed"].tolist(), strict=True):
            found[flow] = found.get(flow, 0) + packets
    return found


def _finding(
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
        _next_step(case, [case.peers[flow.id] for flow in group if flow.id in case.peers]),
        hits={flow.id: troubles[flow.id].packets for flow in group},
        confidence=confidence,
        seen=seen,
    )


def _without_data(case: Case, group: Sequence[Flow], told: Mapping[int, Trouble]) -> Finding:
    """NACKs of packets on ways without a tap; the group are the flows of the NACKs."""
    seen = [told[flow.id] for flow in group]
    receiver = only(flow.src for flow in group)
    packets = counted(sum(trouble.packets for trouble in seen), "NACK")
    who = counted(len(group), "receiver") if receiver is None else printable(receiver)
    found = finding(
        case,
        "queueing",
        Place(host=receiver),
        0,
        f"{packets} of {who} name trimmed packets that no tap saw: a queue is full",
        _next_step(case, [flow.id for flow in group]),
        seen=seen,
    )
    return structs.replace(found, queue_pairs=len(group))


def _next_step(case: Case, tellers: Sequence[int]) -> str:
    nacks = case.measuring.mrc.flows(len(case.flows))["nacks"][tellers].sum(axis=0)
    if nacks[_LAST_HOP] and not nacks[_TRIMMED]:  # this NACK means an incast
        return "spread the senders in time: the last switch trims, its link to the host is full"
    return "find the full queue: a tap on each link of the path shows where packets are trimmed"
