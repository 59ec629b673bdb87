"""Base types of all result records."""

from __future__ import annotations

import msgspec
from msgspec import Meta


def about(text: str) -> Meta:
    """What a field means, for the JSON Schema and the documentation."""
    return Meta(description=text)


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
