"""Base types of all result records, and the declarations of their fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

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
    found = []
    for name, declared in get_type_hints(kind, include_extras=True).items():
        for meta in get_args(declared)[1:]:
            if isinstance(meta, Meta) and meta.extra and "fact" in meta.extra:
                found.append(replace(meta.extra["fact"], name=name))
    return tuple(found)


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
