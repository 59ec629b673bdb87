"""The result of an analysis, with its records of hops, ranks and conformance.

Field names are those of the JSON output. Times are nanoseconds since the Unix
epoch, sizes bytes. A value that the capture cannot give is None; `notes` or the description of the
field gives the reason. No number is ever made up.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from .base import Event, Imbalance, Quantiles, Record, Series, about
from .captures import CaptureSummary, Ended, MirrorChecks
from .diagnosis import Diagnosis
from .flow import Connection, Flow
from .job_records import JobRecords
from .jobs import TrainingJob
from .mrc import Mrc, SegmentList

# Hops between taps, and ranks of the job, as results.


class LostAt(Record, frozen=True):
    """Packets of one flow that were lost on one hop."""

    flow: Annotated[int, about("id of the flow")]
    packets: int
    of_packets: Annotated[int, about("packets of the flow that entered the hop")]
    first_ns: Annotated[int, about("when the first of them was last seen")]
    last_ns: int


class Hop(Record, frozen=True, kw_only=True):
    """From one tap to the next in one direction: one device, or one link.

    The order of taps follows from the TTL or hop limit of each packet, then from its times.
    """

    id: int
    from_tap: str
    to_tap: Annotated[str | None, about("null: the next tap of the lost packets is unknown")]
    device: Annotated[str | None, about("the device between both taps, if their names show it")]
    expected_by: Annotated[
        str | None,
        about(
            "how the next tap of the lost packets is known: flow (other packets of the"
            " flow), destination (packets to the same destination), host (the host's own packets"
            " pass there), partner (a parallel tap), fabric (the links of the fabric file);"
            " null without lost packets"
        ),
    ]
    flows: int
    packets: Annotated[int, about("entered the hop: passed or lost")]
    wire_bytes: int
    passed_packets: int
    lost_packets: Annotated[int, about("never seen after from_tap")]
    lost_percent: float
    lost_by_flow: Annotated[list[LostAt], about("largest first, at most 1,000")]
    lost_frames: Annotated[
        list[int], about("numbers of lost packets in the capture of from_tap, the first 1,000")
    ] = []
    first_lost_ns: int | None
    last_lost_ns: int | None
    ce_marked_packets: Annotated[int, about("not CE at from_tap, CE at to_tap")]
    reordered_packets: Annotated[
        int, about("in order at from_tap, late at to_tap: overtaken on this hop")
    ]
    overtaken_by: Annotated[
        Quantiles | None,
        about(
            "packets with higher PSNs of its flow that reach to_tap before a reordered"
            " packet; null without one"
        ),
    ] = None
    duplicate_packets: Annotated[int, about("more copies at to_tap than at from_tap")]
    trimmed_packets: Annotated[int, about("less payload at to_tap than at from_tap")]
    dscp_changed_packets: int
    hop_limit_drop: Annotated[int | None, about("routers between both taps; null when it varies")]
    delay_ns: Annotated[
        Quantiles | None,
        about("time from tap to tap, by the clocks of the captures; may be negative"),
    ]
    queueing_ns: Annotated[Quantiles | None, about("delay above the smallest delay")]


class CaptureLoss(Record, frozen=True):
    """Packets that a tap missed: seen before and after it."""

    tap: str
    packets: int
    of_packets: Annotated[int, about("packets that passed the tap")]
    first_ns: int
    last_ns: int
    flows: Annotated[list[int], about("ids of the flows, at most 1,000")]


class TapClock(Record, frozen=True):
    """The clock of a tap, relative to another tap."""

    tap: str
    relative_to: str
    offset_ns: Annotated[
        float, about("half the difference of the smallest delays of both directions")
    ]
    uncertainty_ns: Annotated[float, about("half their sum: the offset is within this")]
    drift_ppm: float | None
    steps: Annotated[int, about("times the offset jumped")]
    first_step_ns: Annotated[
        int | None, about("start of the first window after a jump; null: no jump")
    ] = None
    last_step_ns: Annotated[int | None, about("the same for the last jump")] = None


# Ranks of a job: what passes between each two of them, and who waits for whom.


class RankPair(Record, frozen=True, kw_only=True):
    """Data from one rank to another, over all queue pairs between them."""

    comm: str
    sender: int
    receiver: int
    flows: Annotated[int, about("that carry data")]
    packets: int
    wire_bytes: int
    retransmitted_packets: Annotated[int | None, about("null: unknown for a flow")]
    recovered_packets: Annotated[
        int | None, about("lost before the tap and retransmitted; null: unknown for a flow")
    ]
    lost_between_taps: Annotated[
        int, about("seen at a tap and lost before the next; 0 with one tap")
    ] = 0
    missing_packets: Annotated[int | None, about("never seen; null: unknown for a flow")]
    messages: Annotated[int | None, about("null: unknown for a flow")]
    completion_p50_ns: Annotated[
        float | None,
        about("median completion time of messages, of the slowest flow; null: no ACKs"),
    ]
    completion_max_ns: Annotated[
        float | None, about("longest completion time of a message; null: no ACKs")
    ]


class RankTiming(Record, frozen=True, kw_only=True):
    """When one rank arrives in the collectives of a communicator, and what it waits for."""

    rank: int
    last: Annotated[int, about("collectives in which it arrives last")]
    late_ns: Annotated[Quantiles, about("from the first message of any rank to its first message")]
    others_wait_ns: Annotated[
        int, about("sum over those where it is last: time since the previous arrival")
    ]
    ring_steps: Annotated[
        int | None, about("sends that follow a receive; null: not a ring, see `why`")
    ]
    waits_ns: Annotated[int | None, about("ring: time without a message to pass on, in all steps")]
    holds_ns: Annotated[int | None, about("ring: time from having a message to passing it on")]


class CommunicatorTiming(Record, frozen=True, kw_only=True):
    """The order in which the ranks of a communicator arrive in its collectives."""

    comm: str
    collectives: Annotated[
        int,
        about(
            "until a silence after which all data flows have carried the same number of messages"
        ),
    ]
    partial: Annotated[int, about("those with unequal numbers: not counted")]
    ranks: Annotated[list[RankTiming], about("longest `others_wait_ns` first")]
    slowest: Annotated[
        int | None, about("rank that arrives last in more than half of at least 3 collectives")
    ]
    waits_least: Annotated[int | None, about("ring: the rank that waits least for its predecessor")]
    why: Annotated[list[str], about("why a value above is unknown")]


class Ranks(Record, frozen=True, kw_only=True):
    """Ranks of the job in this capture, from its logs."""

    pairs: Annotated[list[RankPair], about("worst first: losses, then bytes")]
    timing: list[CommunicatorTiming]


# Results of the conformance checks: `conformance` of an analysis, and `rocescope check`.


class Violation(Record, frozen=True):
    """One violation of a rule."""

    rule: Annotated[str, about("id of the rule")]
    text: str
    source: Annotated[str, about("document and section of the rule")]
    certainty: Annotated[str, about("how reliably the source states the rule")]
    flow: Annotated[int | None, about("id of the flow whose sender or peer violated the rule")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    time_ns: int
    frame_number: Annotated[int, about("frame of the violating packet, at its tap")]
    related_frame: Annotated[
        int | None, about("earlier frame at the same tap that the packet contradicts")
    ]
    psn: int | None
    expected_psn: int | None


class RuleResult(Record, frozen=True):
    """Result of one rule, over all connections and taps."""

    id: str
    title: str
    side: Annotated[str, about("the side that the rule applies to: requester or responder")]
    source: str
    certainty: str
    needs: Annotated[str, about("what the capture must contain for a verdict")]
    status: Annotated[str, about("passed, violated or not_judged")]
    judged: Annotated[int, about("cases with a verdict")]
    violations: int
    undecided: Annotated[int, about("cases without a verdict")]
    reasons: Annotated[dict[str, int], about("undecided cases by reason")]


class RecoveryLatency(Record, frozen=True):
    """Times of loss recovery as seen at the taps; null without a timed case."""

    nak_generation_ns: Annotated[
        Quantiles | None, about("first packet after a gap to the NAK for the gap")
    ]
    nak_response_ns: Annotated[
        Quantiles | None, about("NAK to the retransmission of the PSN it names")
    ]
    retransmission_ns: Annotated[
        Quantiles | None, about("a packet to its retransmission; only at taps before the loss")
    ]
    next_delivered_ns: Annotated[
        Quantiles | None, about("first transmission of a lost packet to that of the next packet")
    ]


class ConformanceView(Record, frozen=True):
    """One direction of one connection, as one tap saw it."""

    flow: Annotated[int | None, about("id of the flow with the requests")]
    src: str
    dst: str
    dest_qp: int
    tap: str
    position: Annotated[
        str,
        about(
            "where the tap is, judged by losses: before_loss (near the sender),"
            " behind_loss (near the receiver), between_losses, or no_loss"
        ),
    ]
    requests: int
    answers: int
    resent_packets: int
    rewinds: Annotated[dict[str, int], about("by trigger: nak, rnr, timeout, read, unknown")]
    violations: int
    undecided: int
    latency: RecoveryLatency


class CnpScope(Record, frozen=True):
    """CNPs counted in one pacing scope."""

    scope: Annotated[str, about("port, ip_pair, destination or queue_pair")]
    notifiers: Annotated[
        int, about("ports, pairs, destinations or queue pairs with CE marks or CNPs")
    ]
    expected_cnps: Annotated[int, about("CNPs that the CE marks should have caused")]
    difference: Annotated[int, about("sum of |expected - seen| over the notifiers")]
    too_close: Annotated[int, about("CNPs earlier than the minimum interval")]
    least_spacing_ns: int | None


class CnpConformance(Record, frozen=True):
    """CE marks and the CNPs they caused, at one tap."""

    tap: str
    min_interval_ns: int
    ecn_marked_packets: int
    cnps: int
    scopes: list[CnpScope]
    explained_by: Annotated[
        list[str], about("scopes that explain the CNPs best; empty when unknown")
    ]
    text: str


class CounterCheck(Record, frozen=True):
    """One counter of a host compared with the capture."""

    host: str
    tap: str
    counter: str
    driver: str
    grew_by: int
    captured: Annotated[int | None, about("null when no tap can see it")]
    agrees: bool | None
    meaning: str
    text: Annotated[str, about("possible reasons for a difference")]


class Conformance(Record, frozen=True):
    """Whether the queue pairs follow the rules, as far as the capture shows."""

    conformant: Annotated[bool, about("no violation was seen")]
    rules: list[RuleResult]
    violations: list[Violation]
    violations_omitted: Annotated[
        int, about("further violations of the same kinds by the same flows: only counted")
    ]
    latency: RecoveryLatency
    cnp: list[CnpConformance]
    counters: list[CounterCheck]
    views: list[ConformanceView]
    notes: list[str]


# Results of live analyses only.


class LiveInterval(Record, frozen=True, kw_only=True):
    """Traffic of one interval. A line without `interval` is the Analysis of the whole run."""

    interval: Annotated[int, about("number of the interval, from 1")]
    end_time_ns: int
    duration_ns: int
    dropped_frames: Annotated[int, about("packets lost in this interval because a ring was full")]
    dropped_frames_total: Annotated[int, about("packets lost since the start")]
    too_short_frames: Annotated[int, about("frames too short to read")]
    merged_frames: Annotated[
        int, about("frames into which the kernel merged several packets (GRO or GSO)")
    ]
    frames: Annotated[int, about("frames of any kind seen by the probes")]
    packets: Annotated[int, about("RoCE packets; a packet seen at several taps counts once")]
    wire_bytes: int
    packets_per_second: float
    bits_per_second: float
    flows: Annotated[int, about("flows with packets in this interval")]
    flows_total: Annotated[int, about("flows since the start")]
    reordered_packets: int
    retransmitted_packets: int
    missing_packets_total: Annotated[int, about("PSNs not seen by the end of this interval")]
    ecn_marked_packets: int
    cnps: int
    naks: int
    rnr_naks: int
    interfaces_gone: Annotated[
        list[str], about("interfaces that have disappeared or lost their probes")
    ]


class RdmaPort(Record, frozen=True):
    """Growth of the counters of one RDMA port of this host during a live analysis."""

    device: str
    port: int
    counters: Annotated[
        dict[str, int], about("names as in the kernel; port_*_data count words of four bytes")
    ]
    hw_counters: Annotated[dict[str, int], about("counters of the adapter's driver")]
    restarted: Annotated[
        list[str], about("counters reset during the analysis: their growth is unknown")
    ]


SCHEMA_VERSION = "1.6"


class Analysis(Record, frozen=True, kw_only=True):
    """Everything `rocescope analyze` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the analysis was interrupted")]
    captures: list[CaptureSummary]
    diagnosis: Diagnosis
    jobs: Annotated[list[TrainingJob], about("training jobs that the packets show")] = []
    flows: list[Flow]
    connections: list[Connection]
    imbalance: list[Imbalance]
    hops: Annotated[list[Hop], about("from tap to tap, one direction each; empty with one tap")]
    capture_losses: list[CaptureLoss]
    clocks: list[TapClock]
    events: list[Event]
    events_omitted: int
    series: Series
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]
    ended: Annotated[
        Ended | UnsetType,
        about(
            "only if flows were removed from memory (live or with --follow), or "
            "packets were beyond a limit"
        ),
    ] = UNSET
    rdma_ports: Annotated[
        list[RdmaPort] | UnsetType, about("only in a live analysis on a host with RDMA devices")
    ] = UNSET
    conformance: Annotated[Conformance | UnsetType, about("only with --conformance")] = UNSET
    mrc: Annotated[Mrc | UnsetType, about("only when the capture holds MRC")] = UNSET
    mirror_checks: Annotated[
        MirrorChecks | UnsetType, about("only with --mirror-format lumina")
    ] = UNSET
    ranks: Annotated[
        Ranks | UnsetType, about("only if both ranks of a flow are known, from logs")
    ] = UNSET
    job_records: Annotated[
        JobRecords | UnsetType, about("only with --flight-recorder or --nccl-inspector")
    ] = UNSET
    segment_lists: Annotated[
        list[SegmentList] | UnsetType, about("only when the capture holds SRv6; bounded")
    ] = UNSET

    @property
    def left(self) -> Ended:
        """`ended`, with zeros where no flow left memory."""
        return self.ended if isinstance(self.ended, Ended) else Ended()


# The result of `rocescope check`.


class Check(Record, frozen=True, kw_only=True):
    """Everything `rocescope check` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, about("False when the check was interrupted")]
    captures: list[CaptureSummary]
    conformance: Conformance
    warnings: Annotated[
        list[str], about("what limits trust in these results, most important first")
    ]
