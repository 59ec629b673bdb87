"""Flows and connections with all their measurements."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from .base import Fact, HistogramBin, PathShare, Quantiles, Record, Spraying, about, facts_of
from .captures import Sampling
from .mrc import MrcFlow


class Reordering(Record, frozen=True):
    """RFC 4737 and RFC 5236 metrics over the packets with a PSN in this flow's own sequence."""

    ratio: Annotated[float, about("reordered packets / unique packets (RFC 4737 3.3)")]
    max_extent: Annotated[int, about("packets (RFC 4737 4.2)")]
    extent_packets: Quantiles | None
    extent_histogram: list[HistogramBin]
    late_time_ns: Annotated[Quantiles | None, about("RFC 4737 4.3")]
    late_time_histogram: list[HistogramBin]
    held_packets: Annotated[
        Quantiles | None, about("packets with higher PSNs that a receiver must buffer")
    ]
    byte_offset: Annotated[
        Quantiles | None, about("bytes that a receiver must buffer (RFC 4737 4.4)")
    ]
    gap_packets: Annotated[
        Quantiles | None, about("packets between reordering discontinuities (RFC 4737 4.5)")
    ]
    gap_time_ns: Quantiles | None
    n_reordering: Annotated[
        list[int], about("packets that are n-reordered, for n = 1, 2, ... (RFC 4737 5.4)")
    ]
    max_n_reordering: int
    runs: Annotated[int, about("reordering-free runs (RFC 4737 4.6)")]
    run_packets: Annotated[int, about("packets in those runs")]
    run_packets_squared: Annotated[int, about("sum of the squared run lengths")]
    displacement_threshold: int
    density: Annotated[
        dict[int, int], about("packets per displacement, early < 0 < late (RFC 5236 RD)")
    ]
    buffer_density: Annotated[
        dict[int, int], about("arrivals per receive-buffer occupancy (RFC 5236 RBD)")
    ]


class Recovery(Record, frozen=True):
    """Losses and their recovery."""

    naks: Annotated[
        dict[str, int] | None,
        about(
            "NAKs received for this flow's packets, by code; null if the snap length cuts off AETHs"
        ),
    ]
    rnr_naks: Annotated[
        int | None, about("null for counters, and if the snap length cuts off AETHs")
    ]
    retransmitted_by: Annotated[
        dict[str, int] | None,
        about(
            "retransmitted requests by trigger: nak, rnr, timeout, implied, unknown; "
            "null for counters and samples, and if only READ or atomic responses are retransmitted",
            from_samples=False,
        ),
    ]
    rewinds: Annotated[
        int | None,
        about(
            "times the requester went back to an earlier PSN; null as `retransmitted_by`",
            from_samples=False,
        ),
    ]
    rewound_bytes: Annotated[
        int | None,
        about(
            "wire bytes of retransmitted requests; null as `retransmitted_by`", from_samples=False
        ),
    ]
    gap_to_nak_ns: Annotated[
        Quantiles | None,
        about("first packet after a gap to the NAK for the gap", from_samples=False),
    ]
    nak_to_resend_ns: Annotated[
        Quantiles | None, about("NAK to the first retransmitted packet", from_samples=False)
    ]
    timeout_ns: Annotated[
        Quantiles | None, about("silence before a retransmission without a NAK", from_samples=False)
    ]
    retransmission: Annotated[
        Literal["go-back-n", "selective"] | None,
        about(
            "whether the sender retransmits all packets from a lost one on, or only lost ones, as"
            " its packets show; null: not seen"
        ),
    ] = None


class Messages(Record, frozen=True):
    """Messages: a First..Last or Only; a READ request with its responses."""

    count: int | None
    incomplete: Annotated[
        int | None, about("messages without their first or last packet; null for counters")
    ]
    size_bytes: Quantiles | None
    duration_ns: Annotated[Quantiles | None, about("first packet to last packet")]
    completion_ns: Annotated[Quantiles | None, about("first packet to its ACK or last response")]
    max_outstanding: Annotated[int | None, about("most messages started and not yet acknowledged")]


class Latency(Record, frozen=True):
    """Times from this flow's packets to the responses of the peer, as seen at the tap."""

    request_to_ack_ns: Quantiles | None
    read_to_first_response_ns: Quantiles | None


class Congestion(Record, frozen=True):
    """ECN and CNP."""

    ecn_capable_packets: int
    ecn_marked_packets: Annotated[int, about("CE")]
    cnps: Annotated[int, about("congestion notification packets this flow sent")]
    cnp_spacing_ns: Quantiles | None
    dscp: Annotated[dict[int, int], about("packets per DSCP, without CNPs")]


class IdleGaps(Record, frozen=True):
    """Gaps between consecutive packets of a flow: where flowlet switching could act."""

    over_10us: int
    over_50us: int
    over_100us: int
    over_500us: int
    max_ns: int


class Owner(Record, frozen=True):
    """The process that owns a queue pair."""

    pid: Annotated[int | None, about("null: not in the log")]
    command: Annotated[str | None, about("null: not in the log")]
    rank: Annotated[
        int | None, about("in its MPI, Slurm or torchrun job; from a log in its communicator")
    ]
    end: Annotated[
        str, about("the end of the flow that the process owns: destination or source")
    ] = "destination"
    host: Annotated[str | None, about("host name, from a log")] = None
    device: Annotated[str | None, about("RDMA device, from a log")] = None
    comm: Annotated[str | None, about("communicator, from a log")] = None
    peer_rank: Annotated[int | None, about("rank at the other end of the flow, from logs")] = None
    inferred_channel: Annotated[
        int | None, about("channel, inferred from the order of log lines")
    ] = None

    @property
    def ranks(self) -> tuple[int | None, int | None]:
        """The rank that sends the flow and the rank that receives it."""
        if self.end == "source":
            return self.rank, self.peer_rank
        return self.peer_rank, self.rank


class Flow(Record, frozen=True, kw_only=True):
    """One-way packets from one source address to one (destination address, destination QPN)."""

    id: int
    src: str
    dst: str
    dest_qp: int
    transport: str
    connection: Annotated[int | None, about("id of its connection; null when unknown")]
    first_time_ns: int
    last_time_ns: int
    packets: Annotated[
        int, about("without copies at other taps (tap_copies)", flow_column="packets")
    ]
    wire_bytes: Annotated[int, about(flow_column="wire_bytes")]
    payload_bytes: Annotated[int, about(flow_column="payload_bytes")]
    request_packets: Annotated[int, about(flow_column="request_packets")]
    response_packets: Annotated[
        int, about("READ responses and atomic ACKs", flow_column="response_packets")
    ]
    ack_packets: Annotated[int, about("ACKs and NAKs", flow_column="ack_packets")]
    opcodes: dict[str, int]
    path_mtu: Annotated[int | None, about("inferred; null when no First or Middle packet was seen")]
    messages: Annotated[int | None, about("null for samples", from_samples=False)]
    reordered_packets: Annotated[
        int | None,
        about(
            "original transmissions that arrived late at their first tap",
            stream_columns=("reordered",),
            is_trouble=True,
            from_samples=False,
        ),
    ]
    reordered_between_taps: Annotated[
        int | None, about("in order at a tap and late at the next; null for flows of one tap")
    ] = None
    lost_between_taps: Annotated[
        int | None, about("seen at a tap and lost before the next; null for flows of one tap")
    ] = None
    retransmitted_packets: Annotated[
        int | None,
        about(
            "retransmissions, whether or not the original was seen",
            title="retransmitted packets",
            key="resent",
            short="RETRANS",
            priority=1,
            stream_columns=("recovered", "retransmitted"),
            is_trouble=True,
            from_samples=False,
        ),
    ]
    recovered_packets: Annotated[
        int | None,
        about(
            "retransmissions of packets that were lost before the tap",
            title="packets lost before the tap and retransmitted",
            key="lost",
            short="LOST",
            width=5,
            priority=6,
            stream_columns=("recovered",),
            is_trouble=True,
            from_samples=False,
        ),
    ]
    duplicate_packets: Annotated[
        int | None,
        about(
            "one transmission seen twice: duplicated by the network",
            title="packets duplicated by the network",
            key="doubled",
            stream_columns=("duplicates",),
            is_trouble=True,
            from_samples=False,
        ),
    ]
    mirror_duplicates: Annotated[
        int | None,
        about(
            "one transmission mirrored at two hops",
            stream_columns=("mirror_duplicates",),
            is_trouble=True,
            from_samples=False,
        ),
    ]
    tap_copies: Annotated[
        int, about("copies of packets already counted at another tap", flow_column="tap_copies")
    ]
    missing_packets: Annotated[
        int | None,
        about(
            "PSNs never seen by the end",
            title="PSNs never seen",
            key="missing",
            short="MISSING",
            priority=7,
            is_trouble=True,
            from_samples=False,
        ),
    ]
    capture_loss_suspected_packets: Annotated[
        int | None,
        about("missing packets that the peer acknowledged: they arrived there", from_samples=False),
    ]
    sequence_restarts: Annotated[
        int | None, about(stream_columns=("restarts",), unsequenced=0, from_samples=False)
    ]
    naks: Annotated[
        int | None,
        about(
            "NAKs this flow carried (PSN error and others, not RNR); null if the snap length cuts"
            " off AETHs",
            flow_column="naks",
        ),
    ]
    rnr_naks: Annotated[
        int | None,
        about(
            "RNR NAKs this flow carried; null if the snap length cuts off AETHs",
            flow_column="rnr_naks",
        ),
    ]
    cnps: Annotated[int, about(flow_column="cnps")]
    ecn_marked_packets: Annotated[
        int, about("marked CE at any tap; each packet counts once", flow_column="ecn_marked")
    ]
    entropy_values: Annotated[int, about("different UDP source ports")]
    spraying_width: float
    paths: Annotated[list[PathShare], about("paths by the chosen path key")]
    spraying: list[Spraying]
    reordering: Annotated[Reordering | None, about(from_samples=False)]
    recovery: Recovery
    message_statistics: Messages
    latency: Latency
    congestion: Congestion
    idle_gaps: IdleGaps
    goodput_bits_per_second: Annotated[
        float | None,
        about(
            "acknowledged payload, or that of READ responses; null: none, UC or UD,"
            " or no answer was seen",
            from_samples=False,
        ),
    ]
    activity_bytes: Annotated[
        list[int], about("wire bytes in equal time bins over the whole capture")
    ]
    activity_bin_ns: int
    taps: Annotated[dict[str, int], about("packets seen at each tap, copies included")]
    owner: Owner | None = None
    notes: list[str] = []
    mrc: Annotated[MrcFlow | UnsetType, about("only for flows that send MRC")] = UNSET
    sampling: Annotated[Sampling | UnsetType, about("only for samples (sFlow)")] = UNSET

    @property
    def data_packets(self) -> int:
        """Requests and responses: all but ACKs and CNPs."""
        return self.request_packets + self.response_packets


def counted_facts() -> tuple[Fact, ...]:
    """The fields of `Flow` that a kernel of their own counts."""
    return tuple(fact for fact in facts_of(Flow) if fact.measure)


class Connection(Record, frozen=True):
    """Two flows of one pair of queue pairs."""

    id: int
    flows: Annotated[list[int], about("ids of the two flows")]
    a: str
    a_qp: int
    b: str
    b_qp: int
    transport: str
    evidence: Annotated[
        list[str],
        about(
            "cm, ack_psn, read_response_psn, nak_psn, udp_source_port, answer_delays, host_probe"
        ),
    ]
    path_mtu: int | None
    service: Annotated[str | None, about("RDMA-CM service, when CM messages were seen")]
    read_responses_missing: int | None
    a_rank: Annotated[int | None, about("rank at a; null: no log or host names it")] = None
    b_rank: Annotated[int | None, about("rank at b; null: no log or host names it")] = None
