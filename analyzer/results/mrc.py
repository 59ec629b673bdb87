"""Results of MRC (Multipath Reliable Connection) and of SRv6 paths; see docs/mrc.md."""

from __future__ import annotations

from typing import Annotated

from .base import Quantiles, Record, about


class MrcEntropyValue(Record, frozen=True):
    """One entropy value (EV) of a flow: its packets and the feedback about it."""

    ev: Annotated[str, about("UDP source port/flow label bits 15..0")]
    plane: Annotated[str | None, about("see plane_by")]
    path: Annotated[str | None, about("SRv6 segments left at the tap, if any")]
    packets: int
    wire_bytes: int
    ecn_marked_packets: int
    retransmissions: Annotated[int, about("retransmissions sent with this EV")]
    lost_packets: Annotated[int, about("packets with this EV that were retransmitted later")]
    trimmed_packets: int
    skip_once: Annotated[int | None, about("SACKs with SKIP_ONCE (CE) for this EV")]
    always_skip: Annotated[int | None, about("SACKs with ALWAYS_SKIP for this EV")]
    nacks: int | None
    round_trips: Annotated[
        int | None, about("responses with a reflected timestamp; null without usable timestamps")
    ]
    round_trip_min_ns: int | None
    round_trip_mean_ns: float | None
    round_trip_max_ns: int | None
    first_time_ns: int
    last_time_ns: int


class MrcRetirement(Record, frozen=True):
    """An entropy value that a flow stopped using while it continued to send."""

    ev: str
    plane: str | None
    retired_time_ns: Annotated[int, about("last packet with this EV")]
    returned_time_ns: Annotated[
        int | None, about("next packet with this EV; null when there is none")
    ]
    cause: Annotated[
        str, about("always_skip, port_down, loss or unknown: inferred from the capture")
    ]
    cause_time_ns: Annotated[
        int | None, about("SACK, port status update or retransmission that shows the cause")
    ]
    packets_without: Annotated[int, about("packets sent without this EV")]
    certain: Annotated[bool, about("False: the flow ended too early to confirm the retirement")]


class MrcPlane(Record, frozen=True):
    """Traffic of one direction on one plane."""

    plane: str
    entropy_values: int
    packets: int
    wire_bytes: int
    share: Annotated[float, about("of the bytes, 0 to 1")]


class MrcPlanes(Record, frozen=True):
    """Distribution of bytes over the planes. The sender aims at equal shares."""

    plane_by: Annotated[str, about("segment:N, tap or ev:SHIFT:BITS")]
    inferred: Annotated[bool, about("True when plane_by was not given with --plane-by")]
    planes: list[MrcPlane]
    jain: float
    max_over_mean: float


class MrcAnswers(Record, frozen=True):
    """Feedback from the receiver of a flow to its sender."""

    sacks: int
    probe_responses: int
    skip_once: Annotated[int, about("SACKs with SKIP_ONCE: the forward path was CE")]
    always_skip: int
    nacks: Annotated[dict[str, int], about("reliability NACKs by reason")]
    out_of_order_depth: Annotated[
        Quantiles | None,
        about("PSNs from the cumulative PSN to the highest in the bitmap of each SACK"),
    ]
    max_out_of_order_packets: Annotated[int, about("largest CC_STATE ooo_count")]
    round_trip_ns: Annotated[
        Quantiles | None,
        about(
            "packet at the tap to its response at the tap, by reflected timestamps;"
            " null without timestamps or when the tap is at the receiver"
        ),
    ]
    received_bytes: Annotated[
        int | None, about("growth of the receiver's counter; resolution 256 bytes")
    ]
    in_flight_packets: Annotated[
        Quantiles | None, about("PSNs sent beyond the cumulative PSN, at each SACK")
    ]
    psn_range_packets: Annotated[int | None, about("maximum PSN range; null unless SACKs state it")]
    max_window_use: Annotated[
        float | None, about("most PSNs in flight divided by the maximum PSN range")
    ]


class MrcFlow(Record, frozen=True):
    """The MRC view of a flow that sends data."""

    packets: int
    retransmissions: Annotated[int, about("packets with the RTX bit")]
    retransmissions_after_nack: int
    trimmed_packets: int
    timestamped_packets: Annotated[int, about("with a TSETH of default resolution")]
    entropy_values: Annotated[int, about("different entropy values used")]
    values: Annotated[list[MrcEntropyValue], about("largest first; bounded, see entropy_values")]
    planes: Annotated[MrcPlanes | None, about("null when the planes are unknown")]
    retirements: list[MrcRetirement]
    answers: Annotated[
        MrcAnswers | None, about("null when no response was seen or its flow is unknown")
    ]


class MrcPortOutage(Record, frozen=True):
    """A port (plane) that a host declared unreachable."""

    host: str
    port: Annotated[int, about("from 1: bit 0 of the mask is port 1")]
    down_time_ns: Annotated[int, about("time of the first update that declares the port down")]
    up_time_ns: Annotated[int | None, about("null when the port stays down in this capture")]


class MrcEntropyOrder(Record, frozen=True):
    """Position of the UDP source port in the 32-bit entropy of SACKs and NACKs."""

    order: Annotated[str | None, about("flow_label_high, udp_port_high; null when unknown")]
    reason: Annotated[str | None, about("why the order is unknown")]
    flow_label_high: Annotated[
        int, about("SACKs that match their packet with the flow label in the upper half")
    ]
    udp_port_high: int
    both: Annotated[int, about("SACKs with equal halves")]
    neither: int


class Mrc(Record, frozen=True):
    """MRC traffic of the whole capture."""

    packets: int
    entropy_order: MrcEntropyOrder
    planes: MrcPlanes | None
    planes_unknown_because: str | None
    outages: list[MrcPortOutage]
    flow_label: Annotated[
        str, about("IPv6 header of the EV's flow label: inner; outer if the inner one is 0")
    ] = "inner"


class SegmentList(Record, frozen=True):
    """The remaining SRv6 segments of packets at a tap."""

    path: str
    segments: Annotated[list[list[str]], about("uSIDs of each carrier or SID")]
    empty_places: Annotated[
        int, about("zero uSIDs after those of the first carrier: upper limit of the hops done")
    ]
    packets: int
    wire_bytes: int
