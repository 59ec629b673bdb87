"""Paths of flows, and sets of parallel paths."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Quantiles, Record


class PathShare(Record, frozen=True):
    """Traffic of one path of a flow."""

    path: Annotated[str, Meta(description="the path key: a UDP source port, a tap, a segment list")]
    packets: int
    wire_bytes: int
    share: Annotated[float, Meta(description="of the flow's bytes, 0 to 1")]
    reordered_packets: Annotated[int, Meta(description="packets that arrived late over this path")]
    ecn_marked_packets: int
    first_time_ns: Annotated[int | None, Meta(description="null for a path without packets")]
    last_time_ns: int | None


class Spraying(Record, frozen=True):
    """Distribution of a flow's bytes over its paths, for one path key."""

    path_by: Annotated[str, Meta(description="entropy, tap, srv6 or fabric")]
    inferred: Annotated[bool, Meta(description="True when the key only indicates the real path")]
    paths_seen: int
    width: Annotated[float, Meta(description="exp(Shannon entropy of bytes over paths)")]
    jain: Annotated[float, Meta(description="Jain's fairness index over the paths seen")]
    switches: Annotated[
        int | None, Meta(description="consecutive packets on different paths; null for counters")
    ]
    switches_per_second: float | None
    path_lifetime_ns: Annotated[
        Quantiles | None, Meta(description="first to last packet of each path")
    ]
    paths: Annotated[list[PathShare], Meta(description="largest first; bounded, see paths_seen")]


class Imbalance(Record, frozen=True):
    """Load imbalance of one set of parallel paths."""

    name: str
    path_by: str
    inferred: bool
    paths: int
    flows: int
    wire_bytes: int
    fim_flows_percent: Annotated[
        float | None,
        Meta(description="of flows with data, or of all if the set carried only ACKs and CNPs"),
    ]
    fim_bytes_percent: float | None
    fim_flows_chance_percent: Annotated[
        float | None,
        Meta(description="expected with ideal uniform hashing of the same number of flows"),
    ]
    fim_flows_best_percent: Annotated[
        float | None, Meta(description="minimum over all placements of whole flows")
    ]
    max_over_mean: float
    coefficient_of_variation: float
    jain: float
    shares: list[PathShare]
    fim_all_flows_percent: Annotated[
        float | None,
        Meta(
            description="of all flows, those with only ACKs or CNPs included; null: equal to "
            "fim_flows_percent"
        ),
    ] = None
