"""Paths of flows, parallel paths, and stretches between taps."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Quantiles, Record


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
