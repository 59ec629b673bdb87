"""What the agent answers as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from ..analyzer.results.base import Record, about
from ..analyzer.results.diagnosis import Severity

SCHEMA_VERSION = "1.0"
Problem = Literal[
    "loss", "naks", "receiver-not-ready", "reordering", "ecn-marking", "queue-pairs-in-error"
]


class FlowCounts(Record, frozen=True, kw_only=True):
    """A listed flow; counts since it is listed."""

    interface: str
    direction: str
    src: str
    dst: str
    dest_qp: int
    owner: Annotated[str | None, about("process of this host, where known")]
    pid: int | None
    idle_ns: Annotated[int, about("time since its last packet")]
    packets: int
    wire_bytes: int
    payload_bytes: int
    messages: int
    late_packets: Annotated[int, about("below the expected PSN; with retransmissions")]
    skipped_psns: Annotated[int, about("passed over; late packets may have filled them")]
    naks: int
    rnr_naks: int
    cnps: int
    ecn_marked_packets: int
    packets_in_interval: int
    wire_bytes_in_interval: int
    spraying_width: Annotated[
        float | None, about("of the last interval with 32 data packets; null: none yet")
    ]


class Flows(Record, frozen=True, kw_only=True):
    """Answer of /flows: those with most late, refused and marked packets first, then by bytes."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    interval_ns: int
    listed: Annotated[int, about("flows with a packet within the last minute")]
    blind: Annotated[list[Blind], about("interfaces whose packets are not seen")]
    flows: list[FlowCounts]


class QueuePairCounts(Record, frozen=True, kw_only=True):
    """A queue pair of this host, and the adapter's counters of it."""

    adapter: str
    port: int | None
    qp: int
    remote_qp: int | None
    type: str
    state: str
    pid: int | None
    command: str
    counters: dict[str, int]
    counted_with: Annotated[int, about("queue pairs whose sum the counters are; 0: not counted")]


class QueuePairs(Record, frozen=True, kw_only=True):
    """Answer of /queue-pairs: those in error first, then those with the largest counters."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    known: int
    unknown_because: str | None
    counters_unknown_because: str | None
    queue_pairs: list[QueuePairCounts]


class AgentFinding(Record, frozen=True, kw_only=True):
    """A problem that the counters of the last minute show."""

    kind: Problem
    severity: Severity
    interface: str
    direction: str
    since_ns: int
    packets: Annotated[int, about("hit by it; queue pairs for queue-pairs-in-error")]
    of_packets: int
    share_percent: float
    sentence: str
    next_step: str
    recordings: Annotated[list[str], about("files around its beginning")] = []


class Blind(Record, frozen=True, kw_only=True):
    """An interface whose packets are not seen, and why."""

    interface: str
    reason: str
    sentence: str


class AgentDiagnosis(Record, frozen=True, kw_only=True):
    """Answer of /diagnosis."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    window_ns: int
    summary: str
    findings: list[AgentFinding]
    healthy: Annotated[list[str], about("checks that passed, and what they cover")]
    blind: list[Blind]
    limits: Annotated[list[str], about("what the counters cannot show")]
