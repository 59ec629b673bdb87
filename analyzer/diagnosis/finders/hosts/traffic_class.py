"""Queue pairs of one kind in different traffic classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ....decode.headers.cm import GENERAL_SERVICES_QP
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted
from ..places import only

AGREEMENT = 0.75
"""Least share of the flows in one class for the others to be exceptions. Traffic that mixes classes
evenly does so on purpose."""


def traffic_classes(case: Case, known: Known) -> Iterator[Finding]:
    """Few flows with another DSCP than all others, or not ECN-capable beside flows that are.

    A warning where their hosts use the usual class too: queue pairs of one job belong in one class.
    Otherwise a note: jobs may differ.
    """
    data = [f for f in case.flows if f.payload_bytes and f.dest_qp != GENERAL_SERVICES_QP]
    dscp = {flow.id: case.measuring.congestion.usual_dscp(flow.id) for flow in data}
    usual, odd = _exceptions(data, lambda flow: dscp[flow.id])
    for value in sorted({dscp[flow.id] for flow in odd} - {None}, key=str):
        flows = [flow for flow in odd if dscp[flow.id] == value]
        says = f"{counted(len(flows), 'flow')} with DSCP {value}, where {usual} is usual"
        yield _finding(case, data, flows, says)
    capable, deaf = _exceptions(data, lambda flow: flow.congestion.ecn_capable_packets > 0)
    if deaf and capable:
        yield _finding(
            case, data, deaf, f"{counted(len(deaf), 'flow')} not ECN-capable, others are"
        )


def _exceptions(data: list[Flow], key: Callable[[Flow], object]) -> tuple[object, list[Flow]]:
    """The usual value and the flows with another one, when these are few."""
    counts = Counter(key(flow) for flow in data)
    if not counts:
        return None, []
    usual, agree = counts.most_common(1)[0]
    odd = [flow for flow in data if key(flow) != usual]
    return usual, odd if agree >= AGREEMENT * len(data) else []


def _finding(case: Case, data: list[Flow], odd: list[Flow], says: str) -> Finding:
    ids = {flow.id for flow in odd}
    pairs = {frozenset((flow.src, flow.dst)) for flow in odd}
    usual = {frozenset((flow.src, flow.dst)) for flow in data if flow.id not in ids}
    pair = sorted(next(iter(pairs))) if len(pairs) == 1 else []
    where = f" between {' and '.join(map(printable, pair))}" if pair else ""
    return finding(
        case,
        "dscp-mismatch",
        Place(
            direction=f"between {' and '.join(pair)}" if pair else None,
            host=only(flow.src for flow in odd),
        ),
        sum(flow.packets for flow in data),
        f"{says}{where}",
        "set the same traffic class and ECN on all queue pairs of the job",
        hits={flow.id: flow.packets for flow in odd},
        confidence="proven",
        severity="warning" if pairs & usual else "note",
        costs=False,
    )
