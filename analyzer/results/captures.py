"""Captures as results: contents, limits, and how reading ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from .base import Record, about, facts_of


class Sampling(Record, frozen=True):
    """Estimates of the total traffic from samples (sFlow)."""

    one_in: Annotated[float, about("mean sampling rate: one in N frames")]
    estimated_packets: Annotated[int, about("sampled packets times the sampling rate")]
    estimated_wire_bytes: int
    error_percent: Annotated[
        float, about("standard error of the estimate, 100 / sqrt(sampled packets)")
    ]


class UltraEthernet(Record, frozen=True):
    """Ultra Ethernet packets (UDP port 4793): counted, not tracked."""

    packets: int
    wire_bytes: int
    by_type: Annotated[dict[str, int], about("packets by type of the delivery sublayer")]
    entropy_values: Annotated[int, about("different UDP source ports")]
    lowest_psn: Annotated[int | None, about("of RUD and ROD requests; null without them")]
    highest_psn: int | None


class PauseSpan(Record, frozen=True):
    """A time without packets of one priority."""

    from_ns: int
    until_ns: int


class Pause(Record, frozen=True):
    """PFC (IEEE 802.1Qbb) or global pause (802.3x) frames of one priority at one tap."""

    priority: Annotated[int | None, about("0 to 7; null for global pause")]
    frames: int
    resume_frames: Annotated[int, about("frames with a pause time of 0 (XON)")]
    quanta: Annotated[int, about("sum of the pause times, in units of 512 bit times")]
    paused_ns: Annotated[
        int | None, about("time paused; null when the link rate is unknown (see --link-rate)")
    ]
    first_time_ns: Annotated[
        int | None, about("first frame that pauses; null if every frame ends a pause")
    ]
    last_time_ns: Annotated[int | None, about("last frame that pauses")]
    first_frame_number: Annotated[
        int | None, about("number in the capture of the first frame that pauses")
    ] = None
    last_frame_number: int | None = None
    spans: Annotated[
        list[PauseSpan],
        about(
            "when it was paused, at most 32 spans: pauses close to each other are one;"
            " empty if the link rate is unknown"
        ),
    ] = []


class TapSummary(Record, frozen=True):
    """One vantage point: a file, a pcapng interface, a mirror session, a link or a probe."""

    name: str
    link_type: int
    frames: int
    roce_packets: int
    wire_bytes: Annotated[int, about("bytes of RoCE frames on the wire")]
    dropped_frames: Annotated[
        int | None,
        about(
            "frames dropped by the capture itself; null when not stated; of several links in one"
            " capture, at the first"
        ),
    ]
    speed_bits_per_second: int | None
    pauses: list[Pause]
    sampling: Annotated[Sampling | UnsetType, about("only for samples (sFlow)")] = UNSET
    filter: Annotated[
        str | UnsetType, about("capture filter, only where the capture states it")
    ] = UNSET
    fragmented_packets: Annotated[
        int, about("RoCE packets sent in IP fragments, counted by first fragment")
    ] = 0
    link_addresses: Annotated[
        list[str] | UnsetType,
        about("Ethernet addresses at the ends of the link, where the capture shows several links"),
    ] = UNSET


class CaptureGap(Record, frozen=True):
    """A period without frames in a capture of several files."""

    from_ns: Annotated[int | None, about("last frame before; null if unknown")]
    until_ns: Annotated[int | None, about("first frame after; null if unknown")]
    reason: str


class CaptureSummary(Record, frozen=True):
    """One capture file or stream: contents and quality."""

    name: str
    format: str
    compression: str | None
    frames: int
    roce_packets: int
    first_time_ns: int | None
    last_time_ns: int | None
    duration_ns: int | None
    snapped_frames: Annotated[int, about("frames cut by the snap length")]
    out_of_order_frames: Annotated[
        int, about("records with a time below that of the previous record")
    ]
    undecodable_frames: dict[str, int]
    later_fragments: int
    icrc: Annotated[dict[str, int] | None, about("ok, bad, truncated; null unless checked")]
    contents: Annotated[dict[str, int], about("frames that are not RoCE, by kind")]
    taps: list[TapSummary]
    warnings: list[str]
    damaged_places: Annotated[int, about("places that could not be read: truncated or corrupt")] = 0
    encapsulations: Annotated[
        dict[str, int] | UnsetType, about("frames found in mirrors and tunnels, by kind")
    ] = UNSET
    ultra_ethernet: Annotated[UltraEthernet | UnsetType, about("only if any")] = UNSET
    gaps: Annotated[
        list[CaptureGap] | UnsetType,
        about("only if any: lost, cut and damaged files of a ring (--tap EXPRESSION)"),
    ] = UNSET


class SwitchCheck(Record, frozen=True):
    """Packet counters of a mirroring switch compared with the capture."""

    mirror_ports: Annotated[list[str], about("ports that send and never receive")]
    received_packets: Annotated[int, about("sum over all ports")]
    mirrored_packets: Annotated[int, about("sent at the mirror ports")]
    captured_packets: int
    agrees: Annotated[bool, about("all three are equal")]


class UndeliveredPackets(Record, frozen=True):
    """Packets of a flow that the switch dropped or corrupted on purpose."""

    src: str
    dst: str
    dest_qp: int
    dropped_packets: int
    bit_errors: int


class MirrorChecks(Record, frozen=True):
    """Integrity of a Lumina mirror, which numbers every packet and stamps it in hardware."""

    packets: int
    lost_packets: Annotated[int, about("missing mirror numbers: packets lost by the mirror")]
    gaps: Annotated[int, about("gaps in the mirror numbers, per file")]
    out_of_order_packets: Annotated[int, about("mirror numbers below the previous one")]
    times_backwards: Annotated[
        int, about("timestamps more than 50 ns below the previous one, per file")
    ]
    direction_times_backwards: Annotated[
        int, about("timestamps below the previous one of the same sender, by number, per file")
    ]
    injected: Annotated[dict[str, int], about("packets by injected event")]
    undelivered: list[UndeliveredPackets]
    switch: Annotated[SwitchCheck | None, about("only with --switch-counters")]


# Traffic of an analysis that is in none of its flows.

_TOTALS: dict[str, Callable[[list[int]], int]] = {"sum": sum, "min": min, "max": max}


class Ended(Record, frozen=True, kw_only=True):
    """Sums of flows that were idle and were removed from memory, and of packets beyond the limits.

    None of them is in `flows`. Counts are defined like those of a flow.
    """

    flows: int = 0
    queue_pairs: Annotated[
        int,
        about(
            "connections with requests or READ responses; a flow without a known"
            " connection counts as one"
        ),
    ] = 0
    connections: Annotated[int, about("known connections of these flows")] = 0
    flows_in_trouble: Annotated[
        int,
        about(
            "flows with losses, late, marked, refused or retransmitted packets: only"
            " the worst idle flows stay in `flows`"
        ),
    ] = 0
    first_time_ns: Annotated[int | None, about(total="min")] = None
    last_time_ns: Annotated[int | None, about(total="max")] = None
    packets: int = 0
    wire_bytes: int = 0
    payload_bytes: int = 0
    request_packets: int = 0
    response_packets: int = 0
    ack_packets: int = 0
    tap_copies: int = 0
    naks: int = 0
    rnr_naks: int = 0
    cnps: int = 0
    ecn_marked_packets: int = 0
    reordered_packets: int = 0
    retransmitted_packets: int = 0
    recovered_packets: int = 0
    duplicate_packets: int = 0
    mirror_duplicates: int = 0
    sequence_restarts: int = 0
    lost_between_taps: int = 0
    reordered_between_taps: int = 0
    marked_between_taps: Annotated[
        int, about("CE after the first tap; `ecn_marked_packets` holds those marked before it")
    ] = 0
    missing_packets: Annotated[int, about("without the flows of which a tap saw only a part")] = 0
    sequenced_packets: Annotated[
        int, about("request and response packets of flows with a PSN order")
    ] = 0
    partial_flows: Annotated[
        int, about("flows of which a tap saw only a part: their losses are unknown")
    ] = 0
    unknown_between_taps: Annotated[
        int, about("packets that a later tap did not see: whether lost is unknown")
    ] = 0
    untapped_flows: Annotated[int, about("flows on paths without a tap")] = 0
    missed_by_captures: Annotated[
        int, about("packets that passed a tap and are missing in its capture")
    ] = 0
    untracked_packets: Annotated[
        int,
        about(
            "of new flows beyond the limit of the terminal UI, or of addresses after"
            " the first 262,143: not analysed, and in no other sum"
        ),
    ] = 0
    untracked_wire_bytes: int = 0
    returned_flows: Annotated[
        int | None,
        about(
            "flows of captures that resumed after removal from memory: each counts as "
            "a new flow, losses and late packets in between are unknown; null with `--idle-after`: "
            "not counted"
        ),
    ] = None

    @property
    def in_part(self) -> bool:
        """Whether packets were not analysed, or not together with the others of their flow."""
        return bool(self.untracked_packets or self.returned_flows)

    def __bool__(self) -> bool:
        return bool(self.flows or self.untracked_packets)

    def joined(self, other: Ended) -> Ended:
        """The sums of both."""
        declared = {fact.name: fact.total for fact in facts_of(Ended)}
        totals: dict[str, Any] = {}
        for name in self.__struct_fields__:
            known = [n for n in (getattr(self, name), getattr(other, name)) if n is not None]
            form = _TOTALS[declared.get(name, "sum")]
            totals[name] = form(known) if known else None
        return Ended(**totals)
