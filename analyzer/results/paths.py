"""Paths of flows, and sets of parallel paths."""

from __future__ import annotations

from typing import Annotated

from .base import Quantiles, Record, about


class PathShare(Record, frozen=True):
    """Traffic of one path of a flow."""

    path: Annotated[str, about("the path key: a UDP source port, a tap, a segment list")]
    packets: int
    wire_bytes: int
    share: Annotated[float, about("of the flow's bytes, 0 to 1")]
    reordered_packets: Annotated[int, about("packets that arrived late over this path")]
    ecn_marked_packets: int
    first_time_ns: Annotated[int | None, about("null for a path without packets")]
    last_time_ns: int | None


class Spraying(Record, frozen=True):
    """Distribution of a flow's bytes over its paths, for one path key."""

    path_by: Annotated[str, about("entropy, tap, srv6 or fabric")]
    inferred: Annotated[bool, about("True when the key only indicates the real path")]
    paths_seen: int
    width: Annotated[float, about("exp(Shannon entropy of bytes over paths)")]
    jain: Annotated[float, about("Jain's fairness index over the paths seen")]
    switches: Annotated[
        int | None, about("consecutive packets on different paths; null for counters")
    ]
    switches_per_second: float | None
    path_lifetime_ns: Annotated[Quantiles | None, about("first to last packet of each path")]
    paths: Annotated[list[PathShare], about("largest first; bounded, see paths_seen")]


class Imbalance(Record, frozen=True):
    """Load imbalance of one set of parallel paths."""

    name: str
    path_by: str
    inferred: bool
    paths: int
    flows: int
    wire_bytes: int
    fim_flows_percent: Annotated[
        float | None, about("of flows with data, or of all if the set carried only ACKs and CNPs")
    ]
    fim_bytes_percent: float | None
    fim_flows_chance_percent: Annotated[
        float | None, about("expected with ideal uniform hashing of the same number of flows")
    ]
    fim_flows_best_percent: Annotated[
        float | None, about("minimum over all placements of whole flows")
    ]
    max_over_mean: float
    coefficient_of_variation: float
    jain: float
    shares: list[PathShare]
    fim_all_flows_percent: Annotated[
        float | None,
        about(
            "of all flows, those with only ACKs or CNPs included; null: equal to fim_flows_percent"
        ),
    ] = None
