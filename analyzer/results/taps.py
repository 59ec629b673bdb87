"""Result records of mirrors: what was sampled, encapsulated or injected on the way to a tap."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Record


class Sampling(Record, frozen=True):
    """What a sample (sFlow) says about the whole: estimates, never counts."""

    one_in: Annotated[float, Meta(description="one frame in so many was sampled, on average")]
    estimated_packets: Annotated[int, Meta(description="sampled packets times the sampling rate")]
    estimated_wire_bytes: int
    error_percent: Annotated[
        float, Meta(description="standard error of the estimate, 100 / sqrt(sampled packets)")
    ]


class UltraEthernet(Record, frozen=True):
    """Ultra Ethernet packets (UDP port 4793): counted, not tracked."""

    packets: int
    wire_bytes: int
    by_type: Annotated[dict[str, int], Meta(description="packets by type of the delivery sublayer")]
    entropy_values: Annotated[int, Meta(description="different UDP source ports")]
    lowest_psn: Annotated[int | None, Meta(description="of RUD and ROD requests; None without any")]
    highest_psn: int | None


class SwitchCheck(Record, frozen=True):
    """Packets that a mirroring switch counted, beside those captured."""

    mirror_ports: Annotated[list[str], Meta(description="that send and never receive")]
    received_packets: Annotated[int, Meta(description="at all ports")]
    mirrored_packets: Annotated[int, Meta(description="sent at the mirrors' ports")]
    captured_packets: int
    agrees: Annotated[bool, Meta(description="all three are equal")]


class UndeliveredPackets(Record, frozen=True):
    """Packets of a flow that the switch kept from their receiver on purpose."""

    src: str
    dst: str
    dest_qp: int
    dropped_packets: int
    bit_errors: int


class MirrorChecks(Record, frozen=True):
    """Integrity of a Lumina mirror, which numbers every packet and stamps it in hardware."""

    packets: int
    lost_packets: Annotated[int, Meta(description="numbers that are missing: lost by the mirror")]
    gaps: Annotated[int, Meta(description="places where numbers are missing, per file")]
    out_of_order_packets: Annotated[int, Meta(description="numbers below the one before")]
    times_backwards: Annotated[
        int, Meta(description="stamps more than 50 ns below the one before, per file")
    ]
    direction_times_backwards: Annotated[
        int,
        Meta(description="stamps below the one before of the same sender, by number, per file"),
    ]
    injected: Annotated[dict[str, int], Meta(description="packets by injected event")]
    undelivered: list[UndeliveredPackets]
    switch: Annotated[SwitchCheck | None, Meta(description="only with --switch-counters")]
