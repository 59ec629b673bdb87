"""The diagnosis: what is wrong, where, since when, and which queue pairs suffer."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from .base import Record
from .flow import Owner

Kind = Literal[
    "loss", "selective-loss", "blackhole", "outage", "rate-limit", "queueing", "ecn-marking",
    "incast", "collision", "polarisation", "rehash", "link-down", "spraying", "reordering",
    "duplication", "corruption", "stalled", "receiver-not-ready", "fatal-nak",
    "timeout-recovery", "retry-storm", "dscp-mismatch", "mtu-mismatch", "pause", "mrc-path",
    "cnp-without-mark", "mark-without-cnp", "capture-loss", "clock",
]  # fmt: skip
"""Kinds of findings; docs/diagnosis.md defines each."""
Severity = Literal["critical", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")
"""Worst first."""
Confidence = Literal["proven", "likely", "possible"]


LOST_AGAIN: Final = "lost_retransmissions"
"""Detail of `loss`: of its packets, those that a flow does not count: it counts each PSN once."""


class Place(Record, frozen=True):
    """Where a finding is: between two taps, a device, a host, a queue pair or a capture."""

    from_tap: Annotated[str | None, Meta(description="last seen at this tap")] = None
    to_tap: Annotated[str | None, Meta(description="never seen, or changed, at this tap")] = None
    device: Annotated[str | None, Meta(description="switch or host by name, if known")] = None
    direction: Annotated[
        str | None, Meta(description='"leaf1 to leaf2", or "before the tap", "after the tap"')
    ] = None
    host: Annotated[str | None, Meta(description="address of a host")] = None
    dest_qp: Annotated[int | None, Meta(description="queue pair of that host")] = None
    capture: Annotated[str | None, Meta(description="tap whose capture is at fault")] = None


class Affected(Record, frozen=True):
    """A flow that suffers from a finding. Both flows of a connection are one queue pair."""

    flow: Annotated[int, Meta(description="id of its flow")]
    src: str
    dst: str
    dest_qp: int
    connection: int | None
    owner: Annotated[Owner | None, Meta(description="process and rank, where known")]
    packets: Annotated[int, Meta(description="packets of the flow that the fault hit")]
    cost_ns: Annotated[
        int | None, Meta(description="time lost to retransmission and silence; null: unknown")
    ]


class Evidence(Record, frozen=True):
    """A frame that shows the fault."""

    tap: str
    frame_number: int
    time_ns: int
    flow: Annotated[int | None, Meta(description="id of the flow that the fault hit there")] = None


class Finding(Record, frozen=True, kw_only=True):
    """One cause: a fault or change, and its victims."""

    kind: Kind
    severity: Annotated[
        Severity,
        Meta(
            description="critical: queue pairs are dead or lose most of their time; warning: costs"
            " time; note: worth knowing"
        ),
    ]
    place: Place
    from_ns: Annotated[int, Meta(description="onset, ns since the Unix epoch")]
    until_ns: Annotated[int | None, Meta(description="null: ongoing at the end")]
    onset_uncertainty_ns: Annotated[
        int, Meta(description="the onset is at most this long before from_ns")
    ] = 0
    flows: Annotated[list[int], Meta(description="ids of the flows that the fault hit")]
    affected: Annotated[list[Affected], Meta(description="most affected first, at most 1,000")]
    queue_pairs: Annotated[
        int | None,
        Meta(
            description="queue pairs that suffer: a connection is one, in both directions; a flow"
            " without a known connection is one; null: written before schema version 1.4"
        ),
    ] = None
    packets: Annotated[int, Meta(description="lost, marked, late, copied: hit by the fault")]
    of_packets: Annotated[int, Meta(description="packets that could have been hit")]
    share_percent: float
    share_low_percent: Annotated[
        float | None, Meta(description="95 % confidence interval of the share")
    ] = None
    share_high_percent: float | None = None
    cost_ns: Annotated[
        int | None, Meta(description="time that all affected queue pairs lost; null: unknown")
    ]
    confidence: Confidence
    sentence: str
    evidence: Annotated[list[Evidence], Meta(description="at most 20")]
    next_step: str
    details: Annotated[
        dict[str, str | int | float] | UnsetType,
        Meta(description="values of this kind only: bits of selective-loss, rate of rate-limit"),
    ] = UNSET


class Diagnosis(Record, frozen=True):
    """Findings, worst first; checks that passed; what the captures cannot show."""

    summary: Annotated[str, Meta(description="one sentence")]
    findings: list[Finding]
    healthy: Annotated[list[str], Meta(description="checks that passed, with what they cover")]
    limits: Annotated[
        list[str],
        Meta(description="what these captures cannot show, and which tap would show it"),
    ]
    complete: Annotated[
        bool,
        Meta(
            description="False when a part was not read: still running, interrupted, ended by a"
            " limit, a damaged capture; healthy then covers the part that was read"
        ),
    ] = True
