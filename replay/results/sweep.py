"""Results of `sweep`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import SCHEMA_VERSION, Chance, FabricSummary, Record, TrafficSummary


class Bin(Record, frozen=True, kw_only=True):
    """Values in [low, high)."""

    low: float
    high: float
    count: int


class Distribution(Record, frozen=True, kw_only=True):
    """One measure over all seeds."""

    min: float
    mean: float
    max: float
    quantiles: Annotated[
        dict[str, float], Meta(description="p1, p5, p10, p25, p50, p75, p90, p95, p99")
    ]
    resolution: Annotated[float, Meta(description="accuracy of the quantiles")]
    histogram: list[Bin]
    distinct: Annotated[
        int | None, Meta(description="number of different values; null: too many to count")
    ]


class SeedValue(Record, frozen=True, kw_only=True):
    """A seed and its imbalance."""

    seed: int
    value: float


class Production(Record, frozen=True, kw_only=True):
    """Rank of the seed in use among all seeds."""

    seed: Annotated[int | None, Meta(description="null: the seeds of the fabric, one per switch")]
    value: float
    better_seeds: Annotated[int, Meta(description="seeds with a smaller value")]
    equal_seeds: Annotated[int, Meta(description="seeds with the same value")]
    percentile: Annotated[float, Meta(description="percentage of seeds with a larger value")]


class SweepLayer(Record, frozen=True, kw_only=True):
    """The distribution for one layer and direction."""

    layer: str
    links: int
    distribution: Distribution
    chance: Chance
    best_percent: Annotated[
        float | None, Meta(description="lower limit of the FIM of flows; null for bytes")
    ]
    used_links: Annotated[float, Meta(description="mean share of links that carry traffic")]
    used_links_chance: float


class SweepResult(Record, frozen=True, kw_only=True):
    """The result of `sweep`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    hash: Annotated[str, Meta(description="hash model of the switches")]
    field_set: str
    seeds: Annotated[list[int], Meta(description="first, last (exclusive), number evaluated")]
    per_switch: Annotated[str, Meta(description="equal or different seeds on the switches")]
    measure: Annotated[str, Meta(description="fim-flows, fim-bytes (percent) or max-over-mean")]
    distribution: Annotated[Distribution, Meta(description="worst layer of each seed")]
    chance: Chance
    best: list[SeedValue]
    worst: list[SeedValue]
    production: Production | None
    layers: list[SweepLayer]
    findings: list[str]
    warnings: list[str]
