"""What the packet-level replay found, beside the records of `replay.py`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One measure over all runs."""

    min: float
    mean: float
    max: float


class LayerQueues(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of the links of one layer and direction, over all runs."""

    layer: str
    p50_packets: Annotated[
        int, Meta(description="queue that an arriving packet finds, ACKs too; median")
    ]
    p99_packets: int
    max_packets: Annotated[int, Meta(description="largest queue, with the packet in service")]
    max_bytes: int
    dropped: int
    trimmed: int
    ecn_marked: int


class FlowTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Time of a message over what it would take alone, over all messages and runs."""

    p50: float
    p99: float
    max: float


class ReceivedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Order of the data packets at their receivers in the first run, by the analyzer's measures."""

    packets: int
    reordered_packets: int
    reordered_percent: float
    max_extent: Annotated[
        int | None, Meta(description="RFC 4737, packets; None: nothing was reordered")
    ]


class PacketReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy on the packet engine."""

    runs: int
    completed_runs: Annotated[int, Meta(description="runs in which every message was completed")]
    completion_ns: Annotated[Spread | None, Meta(description="of the completed runs")]
    over_bound_percent: Annotated[
        Spread | None, Meta(description="completion over the lower bound of its run")
    ]
    bound: Annotated[str, Meta(description="what the lower bound counts")]
    message_slowdown: Annotated[
        FlowTimes | None, Meta(description="from first packet to last ACK, over the same alone")
    ]
    max_queue_packets: Spread
    layers: list[LayerQueues]
    hops: Annotated[int, Meta(description="packets through queues, ACKs too, all runs")]
    dropped: int
    trimmed: int
    ecn_marked: int
    no_route: int
    lost_on_links: Annotated[int, Meta(description="on links that were lossy or went down")]
    sent_again: Annotated[int, Meta(description="data packets that were sent once more")]
    timeouts: int
    load_stretch_ns: Annotated[
        int, Meta(description="of the links' wire_bytes_over_time, from the first packet on")
    ]
    received: Annotated[ReceivedOrder | None, Meta(description="None: too many packets to keep")]
    model: Annotated[
        dict[str, str], Meta(description="sizes, buffers, thresholds, offer, recovery, failures")
    ]
