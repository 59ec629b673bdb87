"""Queue pairs of one kind in different traffic classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....decode.headers.cm import GENERAL_SERVICES_QP
from ....measures.congestion import dscp_outliers
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, plain


def traffic_classes(case: Case, known: Known) -> Iterator[Finding]:
    """Flows whose DSCP differs from that of their peers, or that are not ECN-capable beside flows
    that are.

    Between two hosts this is a warning: queue pairs of one job belong in one class. Between
    different hosts it is a note: jobs may differ.
    """
    flows = case.measuring.tracker.flows
    data = {
        flow.id: dscp
        for flow in case.flows
        if flow.payload_bytes
        and flow.dest_qp != GENERAL_SERVICES_QP
        and (dscp := case.measuring.congestion.usual_dscp(flow.id)) is not None
    }
    for odd in dscp_outliers(data, flows["src"], flows["dst"]):
        hits = {f: case.flows[f].packets for found in odd.flows.values() for f in found}
        classes = ", ".join(
            f"{counted(len(found), 'flow')} with DSCP {dscp}" for dscp, found in odd.flows.items()
        )
        yield _finding(case, hits, odd.hosts is None, f"{classes}, where {odd.usual} is usual")
    for pair in _by_hosts(case, data.keys()):
        deaf = [flow for flow in pair if not flow.congestion.ecn_capable_packets]
        if deaf and len(deaf) < len(pair):
            yield _finding(
                case,
                {flow.id: flow.packets for flow in deaf},
                False,
                f"{len(deaf)} of {counted(len(pair), 'flow')} not ECN-capable",
            )


def _finding(case: Case, hits: dict[int, int], whole: bool, says: str) -> Finding:
    odd = [case.flows[f] for f in hits]
    pair = sorted({odd[0].src, odd[0].dst})
    where = "" if whole else f" between {plain(pair[0])} and {plain(pair[-1])}"
    same = [flow for flow in case.flows if whole or sorted({flow.src, flow.dst}) == pair]
    return finding(
        case,
        "dscp-mismatch",
        Place(direction=None if whole else " and ".join(pair)),
        hits,
        sum(flow.packets for flow in same),
        (min(flow.first_time_ns for flow in odd), max(flow.last_time_ns for flow in odd)),
        f"{says}{where}",
        "set the same traffic class and ECN on all queue pairs of the job",
        confidence="proven",
        severity="note" if whole else "warning",
        costs=False,
    )


def _by_hosts(case: Case, flows: Iterable[int]) -> list[list[Flow]]:
    pairs: dict[tuple[str, str], list[Flow]] = {}
    for f in flows:
        flow = case.flows[f]
        pairs.setdefault((flow.src, flow.dst), []).append(flow)
    return list(pairs.values())
