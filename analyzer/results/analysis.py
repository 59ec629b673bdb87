"""The result of an analysis: immutable records with a versioned schema.

Field names are those of the JSON output. Times are nanoseconds since the Unix
epoch, sizes bytes. A value that this capture cannot give is None, and `notes`
or the field's own text say why; a number is never made up.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from .base import Quantiles as Quantiles
from .base import Record as Record
from .conformance import Conformance
from .mrc import Mrc, MrcFlow, SegmentList
from .taps import MirrorChecks, Sampling, UltraEthernet

SCHEMA_VERSION = "1.1"


class HistogramBin(Record, frozen=True):
    """Values in [low, high)."""

    low: int
    high: int
    count: int


class Pause(Record, frozen=True):
    """PFC (IEEE 802.1Qbb) or global pause (802.3x) frames of one priority at one tap."""

    priority: Annotated[int | None, Meta(description="0 to 7; None for global pause")]
    frames: int
    resume_frames: Annotated[int, Meta(description="frames with a pause time of 0 (XON)")]
    quanta: Annotated[int, Meta(description="sum of the pause times, in units of 512 bit times")]
    paused_ns: Annotated[
        float | None,
        Meta(description="time paused; None when the link rate is unknown (see --link-rate)"),
    ]


class TapSummary(Record, frozen=True):
    """One vantage point: a file, a pcapng interface, a mirror session or a probe."""

    name: str
    link_type: int
    frames: int
    roce_packets: int
    wire_bytes: Annotated[int, Meta(description="bytes of RoCE frames on the wire")]
    dropped_frames: Annotated[
        int | None, Meta(description="lost by the capture itself; None when it does not say")
    ]
    speed_bits_per_second: int | None
    pauses: list[Pause]
    sampling: Annotated[Sampling | UnsetType, Meta(description="only of samples (sFlow)")] = UNSET


class CaptureSummary(Record, frozen=True):
    """One capture file or stream, and how far it can be trusted."""

    name: str
    format: str
    compression: str | None
    frames: int
    roce_packets: int
    first_time_ns: int | None
    last_time_ns: int | None
    duration_ns: int | None
    snapped_frames: Annotated[int, Meta(description="frames cut by the snap length")]
    out_of_order_frames: Annotated[
        int, Meta(description="records whose time lies before that of the record before them")
    ]
    undecodable_frames: dict[str, int]
    later_fragments: int
    icrc: Annotated[
        dict[str, int] | None, Meta(description="ok, bad, truncated; None if not asked")
    ]
    contents: Annotated[dict[str, int], Meta(description="frames that are not RoCE, by kind")]
    taps: list[TapSummary]
    warnings: list[str]
    damaged_places: Annotated[
        int, Meta(description="places that could not be read: cut short, corrupt")
    ] = 0
    encapsulations: Annotated[
        dict[str, int] | UnsetType, Meta(description="frames found in mirrors and tunnels, by kind")
    ] = UNSET
    ultra_ethernet: Annotated[UltraEthernet | UnsetType, Meta(description="only if any")] = UNSET


class PathShare(Record, frozen=True):
    """What one path of a flow carried."""

    path: Annotated[str, Meta(description="the path key: a UDP source port, a tap, a segment list")]
    packets: int
    wire_bytes: int
    share: Annotated[float, Meta(description="of the flow's bytes, 0 to 1")]
    reordered_packets: Annotated[int, Meta(description="packets that arrived late over this path")]
    ecn_marked_packets: int
    first_time_ns: Annotated[int | None, Meta(description="None for a path that carried nothing")]
    last_time_ns: int | None


class Spraying(Record, frozen=True):
    """How a flow's bytes spread over its paths, for one path key."""

    path_by: Annotated[str, Meta(description="entropy, tap, srv6 or fabric")]
    inferred: Annotated[bool, Meta(description="True when the key only hints at the real path")]
    paths_seen: int
    width: Annotated[float, Meta(description="exp(Shannon entropy of bytes over paths)")]
    jain: Annotated[float, Meta(description="Jain's fairness index over the paths seen")]
    switches: Annotated[
        int | None, Meta(description="consecutive packets on different paths; None of counters")
    ]
    switches_per_second: float | None
    path_lifetime_ns: Annotated[
        Quantiles | None, Meta(description="first to last packet of each path")
    ]
    paths: Annotated[
        list[PathShare], Meta(description="the largest first; bounded, see paths_seen")
    ]


class Reordering(Record, frozen=True):
    """RFC 4737 and RFC 5236 metrics over the packets that carry a PSN of this flow's own."""

    ratio: Annotated[float, Meta(description="reordered packets / unique packets (RFC 4737 3.3)")]
    max_extent: Annotated[int, Meta(description="packets (RFC 4737 4.2)")]
    extent_packets: Quantiles | None
    extent_histogram: list[HistogramBin]
    late_time_ns: Annotated[Quantiles | None, Meta(description="RFC 4737 4.3")]
    late_time_histogram: list[HistogramBin]
    held_packets: Annotated[
        Quantiles | None,
        Meta(description="packets with higher PSNs a receiver must hold while it waits"),
    ]
    byte_offset: Annotated[
        Quantiles | None, Meta(description="bytes a receiver must hold (RFC 4737 4.4)")
    ]
    gap_packets: Annotated[
        Quantiles | None, Meta(description="between reordering discontinuities (RFC 4737 4.5)")
    ]
    gap_time_ns: Quantiles | None
    n_reordering: Annotated[
        list[int],
        Meta(description="packets that are n-reordered, for n = 1, 2, ... (RFC 4737 5.4)"),
    ]
    max_n_reordering: int
    runs: Annotated[int, Meta(description="reordering-free runs (RFC 4737 4.6)")]
    run_packets: Annotated[int, Meta(description="packets in those runs")]
    run_packets_squared: Annotated[int, Meta(description="sum of the squared run lengths")]
    displacement_threshold: int
    density: Annotated[
        dict[int, int], Meta(description="packets per displacement, early < 0 < late (RFC 5236 RD)")
    ]
    buffer_density: Annotated[
        dict[int, int], Meta(description="arrivals per receive-buffer occupancy (RFC 5236 RBD)")
    ]


class Recovery(Record, frozen=True):
    """Losses and what was done about them."""

    naks: Annotated[
        dict[str, int], Meta(description="NAKs that named this flow's packets, by code")
    ]
    rnr_naks: Annotated[int | None, Meta(description="None of counters")]
    retransmitted_by: Annotated[
        dict[str, int],
        Meta(description="retransmitted packets by trigger: nak, rnr, timeout, implied, unknown"),
    ]
    rewinds: Annotated[
        int | None,
        Meta(description="times the sender went back to an earlier PSN; None of counters"),
    ]
    rewound_bytes: Annotated[
        int | None, Meta(description="wire bytes sent again; None of counters")
    ]
    gap_to_nak_ns: Annotated[Quantiles | None, Meta(description="gap seen to its NAK seen")]
    nak_to_resend_ns: Annotated[
        Quantiles | None, Meta(description="NAK to the first packet resent")
    ]
    timeout_ns: Annotated[
        Quantiles | None, Meta(description="silence before a resend that no NAK asked for")
    ]


class Messages(Record, frozen=True):
    """Messages: a First..Last or Only; a READ request with its responses."""

    count: int | None
    incomplete: Annotated[
        int | None, Meta(description="begun but never ended, or the reverse; None of counters")
    ]
    size_bytes: Quantiles | None
    duration_ns: Annotated[Quantiles | None, Meta(description="first packet to last packet")]
    completion_ns: Annotated[
        Quantiles | None, Meta(description="first packet to its ACK or last response")
    ]
    max_outstanding: Annotated[
        int | None, Meta(description="messages begun and not yet acknowledged")
    ]


class Latency(Record, frozen=True):
    """Times between this flow's packets and the answers of the other side, as seen at the tap."""

    request_to_ack_ns: Quantiles | None
    read_to_first_response_ns: Quantiles | None


class Congestion(Record, frozen=True):
    """ECN and CNP."""

    ecn_capable_packets: int
    ecn_marked_packets: Annotated[int, Meta(description="CE")]
    cnps: Annotated[int, Meta(description="congestion notification packets this flow sent")]
    cnp_spacing_ns: Quantiles | None
    dscp: Annotated[dict[int, int], Meta(description="packets per DSCP, CNPs apart")]


class IdleGaps(Record, frozen=True):
    """Gaps between consecutive packets of a flow: where flowlet switching could act."""

    over_10us: int
    over_50us: int
    over_100us: int
    over_500us: int
    max_ns: int


class Owner(Record, frozen=True):
    """The process that owns a queue pair."""

    pid: int
    command: str
    rank: Annotated[int | None, Meta(description="in its MPI, Slurm or torchrun job")]
    end: Annotated[
        str, Meta(description="which end of the flow it is: its destination or its source")
    ] = "destination"


class Flow(Record, frozen=True, kw_only=True):
    """One-way packets from one source address to one (destination address, destination QPN)."""

    id: int
    src: str
    dst: str
    dest_qp: int
    transport: str
    connection: Annotated[int | None, Meta(description="id of its connection; None while unknown")]
    first_time_ns: int
    last_time_ns: int
    packets: Annotated[int, Meta(description="without copies at other taps (tap_copies)")]
    wire_bytes: int
    payload_bytes: int
    request_packets: int
    response_packets: Annotated[int, Meta(description="READ responses and atomic ACKs")]
    ack_packets: Annotated[int, Meta(description="ACKs and NAKs")]
    opcodes: dict[str, int]
    path_mtu: Annotated[
        int | None, Meta(description="inferred; None when no First or Middle packet was seen")
    ]
    messages: Annotated[int | None, Meta(description="None of samples")]
    reordered_packets: Annotated[
        int | None, Meta(description="original transmissions that came late")
    ]
    retransmitted_packets: Annotated[
        int | None, Meta(description="sent again, seen here once or more before or not")
    ]
    recovered_packets: Annotated[
        int | None,
        Meta(description="retransmitted, the original never came here: lost before the tap"),
    ]
    duplicate_packets: Annotated[
        int | None, Meta(description="the same transmission twice: network")
    ]
    mirror_duplicates: Annotated[
        int | None, Meta(description="the same transmission mirrored at two hops")
    ]
    tap_copies: Annotated[int, Meta(description="copies of packets already counted at another tap")]
    missing_packets: Annotated[int | None, Meta(description="PSNs never seen by the end")]
    capture_loss_suspected_packets: Annotated[
        int | None,
        Meta(description="of the missing: acknowledged by the peer, so they arrived there"),
    ]
    sequence_restarts: int | None
    naks: Annotated[int, Meta(description="NAKs this flow carried (PSN error and others, not RNR)")]
    rnr_naks: Annotated[int, Meta(description="RNR NAKs this flow carried")]
    cnps: int
    ecn_marked_packets: int
    entropy_values: Annotated[int, Meta(description="different UDP source ports")]
    spraying_width: float
    paths: Annotated[list[PathShare], Meta(description="by the chosen path key")]
    spraying: list[Spraying]
    reordering: Reordering | None
    recovery: Recovery
    message_statistics: Messages
    latency: Latency
    congestion: Congestion
    idle_gaps: IdleGaps
    goodput_bits_per_second: float | None
    activity_bytes: Annotated[
        list[int], Meta(description="wire bytes in equal time bins over the whole capture")
    ]
    activity_bin_ns: int
    taps: Annotated[dict[str, int], Meta(description="packets seen at each tap, copies included")]
    owner: Owner | None = None
    notes: list[str] = []
    mrc: Annotated[MrcFlow | UnsetType, Meta(description="only of flows that send MRC")] = UNSET
    sampling: Annotated[Sampling | UnsetType, Meta(description="only of samples (sFlow)")] = UNSET


class Connection(Record, frozen=True):
    """Two flows of one pair of queue pairs."""

    id: int
    flows: Annotated[list[int], Meta(description="ids of the two flows")]
    a: str
    a_qp: int
    b: str
    b_qp: int
    transport: str
    evidence: Annotated[
        list[str],
        Meta(description="cm, ack_psn, read_response_psn, nak_psn, udp_source_port, host_probe"),
    ]
    path_mtu: int | None
    service: Annotated[str | None, Meta(description="RDMA-CM service, when CM messages were seen")]
    read_responses_missing: int | None


class Imbalance(Record, frozen=True):
    """How unevenly one set of parallel paths was used."""

    name: str
    path_by: str
    inferred: bool
    paths: int
    flows: int
    wire_bytes: int
    fim_flows_percent: float | None
    fim_bytes_percent: float | None
    fim_flows_chance_percent: Annotated[
        float | None, Meta(description="expected with ideal uniform hashing of as many flows")
    ]
    fim_flows_best_percent: Annotated[
        float | None, Meta(description="the best any placement of whole flows could reach")
    ]
    max_over_mean: float
    coefficient_of_variation: float
    jain: float
    shares: list[PathShare]


class Hop(Record, frozen=True):
    """A stretch between two taps (or sets of parallel taps) that flows passed in this order."""

    from_taps: list[str]
    to_taps: list[str]
    flows: int
    packets_before: Annotated[int, Meta(description="at the first taps, resends too")]
    packets_after: int
    lost_packets: Annotated[
        int, Meta(description="seen before and not after, net of duplicates per flow")
    ]
    added_packets: Annotated[int, Meta(description="seen after only: duplicated on the way")]
    lost_by_flow: Annotated[dict[str, int], Meta(description="the flows that lost most")]


class Event(Record, frozen=True):
    """Something worth a look, with where to find it."""

    time_ns: int
    kind: str
    flow: int | None
    frame_number: int | None
    tap: str | None
    text: str


class Series(Record, frozen=True):
    """Totals in fixed windows; all lists are equally long."""

    window_ns: int
    start_ns: int
    packets: list[int]
    wire_bytes: list[int]
    payload_bytes: list[int]
    reordered_packets: list[int]
    retransmitted_packets: list[int]
    duplicate_packets: list[int]
    ecn_marked_packets: list[int]
    cnps: list[int]
    naks: list[int]
    tap_wire_bytes: Annotated[
        dict[str, list[int]], Meta(description="bytes per tap; empty for one tap")
    ]


class RdmaPort(Record, frozen=True):
    """By how much the counters of one RDMA port of this host grew during a live analysis."""

    device: str
    port: int
    counters: Annotated[
        dict[str, int],
        Meta(description="as the kernel names them; port_*_data count words of four bytes"),
    ]
    hw_counters: Annotated[dict[str, int], Meta(description="those of the adapter's driver")]
    restarted: Annotated[
        list[str], Meta(description="set to 0 by somebody meanwhile: their growth is unknown")
    ]


class Analysis(Record, frozen=True, kw_only=True):
    """Everything `rocescope analyze` found."""

    schema_version: str = SCHEMA_VERSION
    version: str
    complete: Annotated[bool, Meta(description="False when the analysis was interrupted")]
    captures: list[CaptureSummary]
    flows: list[Flow]
    connections: list[Connection]
    imbalance: list[Imbalance]
    hops: Annotated[
        list[Hop], Meta(description="losses between taps in series; empty when none are")
    ]
    events: list[Event]
    events_omitted: int
    series: Series
    warnings: Annotated[
        list[str], Meta(description="what limits trust in these results, first things first")
    ]
    rdma_ports: Annotated[
        list[RdmaPort] | UnsetType,
        Meta(description="only of a live analysis on a host with RDMA devices"),
    ] = UNSET
    conformance: Annotated[Conformance | UnsetType, Meta(description="only with --conformance")] = (
        UNSET
    )
    mrc: Annotated[Mrc | UnsetType, Meta(description="only when there is MRC")] = UNSET
    mirror_checks: Annotated[
        MirrorChecks | UnsetType, Meta(description="only with --mirror-format lumina")
    ] = UNSET
    segment_lists: Annotated[
        list[SegmentList] | UnsetType, Meta(description="only when there is SRv6; bounded")
    ] = UNSET
