"""The diagnosis: what is wrong, where, since when, and which queue pairs suffer."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from ..words import timestamp
from .base import Record, about
from .flow import Owner
from .jobs import JobCost

Kind = Literal[
    "loss", "selective-loss", "blackhole", "outage", "rate-limit", "queueing", "ecn-marking",
    "incast", "collision", "polarisation", "rehash", "link-down", "spraying", "reordering",
    "duplication", "corruption", "stalled", "receiver-not-ready", "fatal-nak",
    "timeout-recovery", "retry-storm", "dscp-mismatch", "mtu-mismatch", "pause", "mrc-path",
    "cnp-without-mark", "mark-without-cnp", "capture-loss", "clock", "delay-step",
    "straggler", "slow-link", "hang",
]  # fmt: skip
"""Kinds of findings; docs/diagnosis.md defines each."""
Severity = Literal["critical", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")
"""Worst first."""
Confidence = Literal["proven", "likely", "possible"]


LOST_AGAIN: Final = "lost_retransmissions"
"""Detail of `loss`: of its packets, those that a flow does not count: it counts each PSN once."""


AT_MOST: Final = "at_most_packets"
"""Detail of `loss` after a tap: its packets are at least `packets`, and at most this many."""


class Place(Record, frozen=True):
    """Where a finding is: between two taps, a device, a host, a queue pair or a capture."""

    from_tap: Annotated[str | None, about("last seen at this tap")] = None
    to_tap: Annotated[str | None, about("never seen, or changed, at this tap")] = None
    device: Annotated[str | None, about("switch or host by name, if known")] = None
    direction: Annotated[
        str | None, about('"leaf1 to leaf2", or "before the tap", "after the tap"')
    ] = None
    host: Annotated[str | None, about("address of a host")] = None
    dest_qp: Annotated[int | None, about("queue pair of that host")] = None
    capture: Annotated[str | None, about("tap whose capture is at fault")] = None


class Affected(Record, frozen=True):
    """A flow that suffers from a finding. Both flows of a connection are one queue pair."""

    flow: Annotated[int, about("id of its flow")]
    src: str
    dst: str
    dest_qp: int
    connection: int | None
    owner: Annotated[Owner | None, about("process and rank, where known")]
    packets: Annotated[int, about("packets of the flow that the fault hit")]
    cost_ns: Annotated[int | None, about("time lost to retransmission and silence; null: unknown")]


class Evidence(Record, frozen=True):
    """A frame that shows the fault."""

    tap: str
    frame_number: int
    time_ns: int
    flow: Annotated[int | None, about("id of the flow that the fault hit there")] = None


class Finding(Record, frozen=True, kw_only=True):
    """One cause: a fault or change, and its victims."""

    kind: Kind
    severity: Annotated[
        Severity,
        about(
            "critical: queue pairs are dead or lose most of their time; warning: costs"
            " time; note: worth knowing"
        ),
    ]
    place: Place
    from_ns: Annotated[int, about("onset, ns since the Unix epoch")]
    until_ns: Annotated[int | None, about("null: ongoing at the end")]
    from_utc: Annotated[
        str | None, about("`from_ns` as RFC 3339; null outside the years 1 to 9999")
    ] = None
    until_utc: Annotated[str | None, about("`until_ns` as RFC 3339")] = None
    onset_uncertainty_ns: Annotated[int, about("the onset is at most this long before from_ns")] = 0
    flows: Annotated[list[int], about("ids of the flows that the fault hit")]
    affected: Annotated[list[Affected], about("most affected first, at most 1,000")]
    queue_pairs: Annotated[
        int | None,
        about(
            "queue pairs that suffer: a connection is one, in both directions; a flow"
            " without a known connection is one; null: written before schema version 1.4"
        ),
    ] = None
    packets: Annotated[int, about("lost, marked, late, copied: hit by the fault")]
    of_packets: Annotated[int, about("packets that could have been hit")]
    share_percent: float
    share_low_percent: Annotated[float | None, about("95 % confidence interval of the share")] = (
        None
    )
    share_high_percent: float | None = None
    cost_ns: Annotated[int | None, about("time that all affected queue pairs lost; null: unknown")]
    job_cost: Annotated[
        list[JobCost], about("what training jobs lose, where their steps show it")
    ] = []
    confidence: Confidence
    sentence: str
    evidence: Annotated[list[Evidence], about("at most 20")]
    next_step: str
    details: Annotated[
        dict[str, str | int | float] | UnsetType,
        about("values of this kind only: bits of selective-loss, rate of rate-limit"),
    ] = UNSET

    def __post_init__(self) -> None:
        """The times of day always follow from the ns."""
        force_setattr(self, "from_utc", timestamp(self.from_ns))
        force_setattr(
            self, "until_utc", None if self.until_ns is None else timestamp(self.until_ns)
        )


class Diagnosis(Record, frozen=True):
    """Findings, worst first; checks that passed; what the captures cannot show."""

    summary: Annotated[str, about("one sentence")]
    findings: list[Finding]
    healthy: Annotated[list[str], about("checks that passed, with what they cover")]
    limits: Annotated[
        list[str], about("what these captures cannot show, and which tap would show it")
    ]
    complete: Annotated[
        bool,
        about(
            "False when a part was not read: still running, interrupted, ended by a"
            " limit, a damaged capture; healthy then covers the part that was read"
        ),
    ] = True
