"""CE marks, rewritten DSCPs, copies, trimmed packets and damage that arise on a hop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....measures.hops.hops import TapHop
from ....results.diagnosis import Finding, Kind
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import packets_of
from .groups import HopGroup, groups, hits_by_flow, shown

_TIMES: Final = {
    "marked": "marked", "copies": "copy", "dscp_changed": "dscp", "corrupted": "corrupted",
    "fragmented": "fragmented", "trimmed": "trimmed",
}  # fmt: skip


SMALL_MTU = "raise the MTU of the links, or lower the RoCE path MTU: NICs drop fragments"
"""The next step where packets are fragmented."""
_FAULTS: Final[tuple[tuple[Kind, str, str, str, bool], ...]] = (
    # Not CE at the tap before, CE at the tap after.
    ("ecn-marking", "marked", "marks {share}{way} CE",
     "find what loads this egress: see imbalance and incast", False),
    # More copies at the tap after than at the tap before.
    ("duplication", "copies", "duplicates {share}{way}",
     "check {name} for loops, flooding and mirror sessions that feed the tap", False),
    # Another DSCP at the tap after.
    ("dscp-mismatch", "dscp_changed", "rewrites the DSCP of {share}{way}",
     "check the trust and remark settings of {name}: the packets change their queue", False),
    # A right ICRC at the tap before, a wrong one at the tap after.
    ("corruption", "corrupted", "damages {share}{way}: their ICRC is wrong",
     "look at the error counters of {name} and its links, or drain it", True),
    # Whole at the tap before, the first fragment at the tap after.
    ("mtu-mismatch", "fragmented", "fragments {share}{way}: they exceed its MTU", SMALL_MTU, True),
)  # fmt: skip
"""Kind, column of the hit packets, what the hop does, next step, whether it costs time."""


def hop_faults(case: Case, _: Known) -> Iterator[Finding]:
    """Faults that the taps before and after a hop prove."""
    for fault in _FAULTS:
        yield from _arisen(case, *fault)


def hop_trims(case: Case, known: Known) -> Iterator[Finding]:
    """Less payload at the tap after: a full queue. One that is known says more."""
    for trims in _arisen(
        case, "queueing", "trimmed", "trims {share}{way}: its queue is full",
        "find what loads this egress: see imbalance and incast", True,
    ):  # fmt: skip
        device, tap = trims.place.device, trims.place.to_tap
        if (
            device is None
            or tap is None
            or not any(
                known.onto(kind, device, tap) for kind in ("queueing", "rate-limit", "incast")
            )
        ):
            yield trims


def _arisen(
    case: Case,
    kind: Kind,
    counter: str,
    says: str,
    step: str,
    costs: bool,
) -> Iterator[Finding]:
    if case.ways is None:
        return

    def is_hit(hop: TapHop) -> bool:
        return hop.whole is not None and bool(hop.whole[counter] > 0)

    for group in groups(case.ways, is_hit):
        passed = group.passed()
        hit = passed[passed[counter] > 0]
        packets, hits = int(hit[counter].sum()), hits_by_flow(hit["flow"], hit[counter])
        of = sum(hop.passed_packets for hop in group.hops)
        text = says.format(share=packets_of(packets, of), way=group.way())
        yield finding(
            case,
            kind,
            group.place(case),
            of,
            f"{group.name()} {text}",
            step.format(name=group.name()),
            hits=hits,
            span=_span(group, counter),
            confidence="proven",
            evidence=shown(case, group, counter, hits),
            severity=None if costs else "warning",
            costs=costs,
        )


def _span(group: HopGroup, counter: str) -> tuple[int, int]:
    """First and last time."""
    name = _TIMES[counter]
    hit = [hop.whole for hop in group.hops]
    first = min(int(whole[f"first_{name}_ns"]) for whole in hit)
    return first, max(int(whole[f"last_{name}_ns"]) for whole in hit)
