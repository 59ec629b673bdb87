"""What result records share: their base, series over time, events, paths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What the declaration of a field says besides its type and meaning.

    JSON Schema, columns of files, tables, screens, filters and totals are derived from it.
    """

    name: str = ""
    """The name of the field."""
    title: str = ""
    """In lists and filters; empty: the meaning."""
    short: str = ""
    """The title of its column on screen 2; empty: it has none there."""
    key: str = ""
    """In filters of flows, and the name of its column on screen 2; empty: in neither."""
    width: int = 7
    """Terminal columns."""
    priority: int = 0
    """On narrow terminals columns with the highest number are omitted first."""
    flow_column: str = ""
    """The column of the tracker's flows that holds it."""
    stream_columns: tuple[str, ...] = ()
    """The columns of the tracker's streams whose sum it is."""
    unsequenced: int | None = None
    """The value of a flow without a PSN sequence, for a sum of streams."""
    measure: str = ""
    """`module:function` below `analyzer/measures`: the kernel that counts it, see `Counters`."""
    total: Literal["sum", "min", "max"] = "sum"
    """How several values become one."""
    is_trouble: bool = False
    """A value above 0 is a problem."""
    from_samples: bool = True
    """Whether samples (sFlow) can show it."""
    meaning: str = ""


def about(meaning: str = "", **declared: Any) -> Meta:
    """What a field means, for the JSON Schema and the documentation; declared: of `Fact`."""
    extra = {"fact": Fact(**declared, meaning=meaning)} if declared else None
    return Meta(description=meaning or None, extra=extra)


@cache
def facts_of(kind: type) -> tuple[Fact, ...]:
    """The fields of a record type that declare more than a meaning, in their order."""
    facts = []
    for name, declared in get_type_hints(kind, include_extras=True).items():
        for meta in get_args(declared)[1:]:
            if isinstance(meta, Meta) and meta.extra and "fact" in meta.extra:
                facts.append(replace(meta.extra["fact"], name=name))
    return tuple(facts)


class Record(msgspec.Struct, frozen=True):
    """Base of all result records."""


class Quantiles(Record, frozen=True):
    """Summary of a distribution; values have the unit of the field that holds it."""

    count: int
    min: float
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class HistogramBin(Record, frozen=True):
    """Values in [low, high)."""

    low: int
    high: int
    count: int


# Totals over time.


class Series(Record, frozen=True):
    """Totals in fixed windows; all lists have the same length."""

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
        dict[str, list[int]], about("wire bytes per tap; empty for a single tap")
    ]


# Events.


class Event(Record, frozen=True):
    """A notable event and its place in the capture."""

    time_ns: int
    kind: str
    flow: int | None
    frame_number: int | None
    tap: str | None
    text: str


# Paths of flows, and sets of parallel paths.


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
