"""Results of MRC (Multipath Reliable Connection) and of SRv6 paths; see docs/mrc.md."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Quantiles, Record


class MrcEntropyValue(Record, frozen=True):
    """One entropy value (EV) of a flow: what travelled with it and what came back about it."""

    ev: Annotated[str, Meta(description="UDP source port/flow label bits 15..0")]
    plane: Annotated[str | None, Meta(description="see plane_by")]
    path: Annotated[str | None, Meta(description="SRv6 segments left at the tap, if any")]
    packets: int
    wire_bytes: int
    ecn_marked_packets: int
    retransmissions: Annotated[int, Meta(description="retransmissions that travelled with it")]
    lost_packets: Annotated[int, Meta(description="packets with it that were sent again later")]
    trimmed_packets: int
    skip_once: Annotated[int | None, Meta(description="SACKs that say SKIP_ONCE (CE) of it")]
    always_skip: Annotated[int | None, Meta(description="SACKs that say ALWAYS_SKIP of it")]
    nacks: int | None
    round_trips: Annotated[
        int | None,
        Meta(description="answers with a reflected timestamp; None where no time can be told"),
    ]
    round_trip_min_ns: int | None
    round_trip_mean_ns: float | None
    round_trip_max_ns: int | None
    first_time_ns: int
    last_time_ns: int


class MrcRetirement(Record, frozen=True):
    """An entropy value that a flow left out for long while it went on sending."""

    ev: str
    plane: str | None
    retired_time_ns: Annotated[int, Meta(description="of the last packet that used it")]
    returned_time_ns: Annotated[int | None, Meta(description="None: not seen again")]
    cause: Annotated[
        str, Meta(description="always_skip, port_down, loss or unknown: inferred from the capture")
    ]
    cause_time_ns: Annotated[
        int | None, Meta(description="of the SACK, port status update or retransmission that told")
    ]
    packets_without: Annotated[int, Meta(description="that the flow sent meanwhile")]
    certain: Annotated[
        bool,
        Meta(description="False: the cause is known, but the flow ended before its absence told"),
    ]


class MrcPlane(Record, frozen=True):
    """What one plane carried of one direction."""

    plane: str
    entropy_values: int
    packets: int
    wire_bytes: int
    share: Annotated[float, Meta(description="of the bytes, 0 to 1")]


class MrcPlanes(Record, frozen=True):
    """How bytes spread over the planes. The sender means them to be equal."""

    plane_by: Annotated[str, Meta(description="segment:N, tap or ev:SHIFT:BITS")]
    inferred: Annotated[bool, Meta(description="True when nobody said that this tells planes")]
    planes: list[MrcPlane]
    jain: float
    max_over_mean: float


class MrcAnswers(Record, frozen=True):
    """What the receiver of a flow told its sender."""

    sacks: int
    probe_responses: int
    skip_once: Annotated[int, Meta(description="SACKs with SKIP_ONCE: the forward path was CE")]
    always_skip: int
    nacks: Annotated[dict[str, int], Meta(description="reliability NACKs by reason")]
    out_of_order_depth: Annotated[
        Quantiles | None,
        Meta(description="PSNs from the cumulative to the highest of each SACK's bitmap"),
    ]
    max_out_of_order_packets: Annotated[int, Meta(description="largest CC_STATE ooo_count")]
    round_trip_ns: Annotated[
        Quantiles | None,
        Meta(
            description="packet passes the tap until its answer does, by reflected timestamps;"
            " None without timestamps or with the tap at the receiver"
        ),
    ]
    received_bytes: Annotated[
        int | None, Meta(description="growth of the receiver's counter, units of 256 bytes")
    ]
    in_flight_packets: Annotated[
        Quantiles | None, Meta(description="PSNs sent beyond the cumulative one, at each SACK")
    ]
    psn_range_packets: Annotated[
        int | None, Meta(description="maximum PSN range; None unless SACKs state it")
    ]
    max_window_use: Annotated[
        float | None, Meta(description="most PSNs in flight over the maximum PSN range")
    ]


class MrcFlow(Record, frozen=True):
    """The MRC view of a flow that sends data."""

    packets: int
    retransmissions: Annotated[int, Meta(description="packets with the RTX bit")]
    retransmissions_after_nack: int
    trimmed_packets: int
    timestamped_packets: Annotated[int, Meta(description="with a TSETH of default resolution")]
    entropy_values: Annotated[int, Meta(description="different entropy values used")]
    values: Annotated[
        list[MrcEntropyValue], Meta(description="largest first; bounded, see entropy_values")
    ]
    planes: Annotated[MrcPlanes | None, Meta(description="None: nothing tells planes apart")]
    retirements: list[MrcRetirement]
    answers: Annotated[
        MrcAnswers | None, Meta(description="None: no answer was seen, or not known whose")
    ]


class MrcPortOutage(Record, frozen=True):
    """A port (plane) that a host declared unreachable."""

    host: str
    port: Annotated[int, Meta(description="from 1: bit 0 of the mask is taken as port 1")]
    down_time_ns: Annotated[int, Meta(description="of the first update that says so")]
    up_time_ns: Annotated[int | None, Meta(description="None: not up again in this capture")]


class MrcEntropyOrder(Record, frozen=True):
    """Which half of the 32-bit entropy of SACKs and NACKs is the UDP source port."""

    order: Annotated[
        str | None, Meta(description="flow_label_high, udp_port_high; None: cannot be told")
    ]
    reason: Annotated[str | None, Meta(description="why it cannot be told")]
    flow_label_high: Annotated[
        int, Meta(description="SACKs that agree with their packet if the flow label is high")
    ]
    udp_port_high: int
    both: Annotated[int, Meta(description="the halves are equal")]
    neither: int


class Mrc(Record, frozen=True):
    """MRC in a capture as a whole."""

    packets: int
    entropy_order: MrcEntropyOrder
    planes: MrcPlanes | None
    planes_unknown_because: str | None
    outages: list[MrcPortOutage]
    flow_label: Annotated[
        str,
        Meta(description="header of the entropy values' flow label: inner; outer where that is 0"),
    ] = "inner"


class SegmentList(Record, frozen=True):
    """The SRv6 segments that packets had before them at a tap."""

    path: str
    segments: Annotated[list[list[str]], Meta(description="uSIDs of each carrier or SID")]
    empty_places: Annotated[
        int, Meta(description="zeros behind the first carrier's uSIDs: at most so many hops done")
    ]
    packets: int
    wire_bytes: int
