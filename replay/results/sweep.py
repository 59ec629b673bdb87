"""Results of `sweep`."""

from __future__ import annotations

from typing import Annotated

from ...analyzer.results.base import Record, about
from .base import SCHEMA_VERSION, Chance, FabricSummary, TrafficSummary


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
    quantiles: Annotated[dict[str, float], about("p1, p5, p10, p25, p50, p75, p90, p95, p99")]
    resolution: Annotated[float, about("accuracy of the quantiles")]
    histogram: list[Bin]
    distinct: Annotated[int | None, about("number of different values; null: too many to count")]


class SeedValue(Record, frozen=True, kw_only=True):
    """A seed and its imbalance."""

    seed: int
    value: float


class Production(Record, frozen=True, kw_only=True):
    """Rank of the seed in use among all seeds."""

    seed: Annotated[int | None, about("null: the seeds of the fabric, one per switch")]
    value: float
    better_seeds: Annotated[int, about("seeds with a smaller value")]
    equal_seeds: Annotated[int, about("seeds with the same value")]
    percentile: Annotated[float, about("percentage of seeds with a larger value")]


class SweepLayer(Record, frozen=True, kw_only=True):
    """The distribution for one layer and direction."""

    layer: str
    links: int
    distribution: Distribution
    chance: Chance
    best_percent: Annotated[float | None, about("lower limit of the FIM of flows; null for bytes")]
    used_links: Annotated[float, about("mean share of links that carry traffic")]
    used_links_chance: float


class SweepResult(Record, frozen=True, kw_only=True):
    """The result of `sweep`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    hash: Annotated[str, about("hash model of the switches")]
    field_set: str
    seeds: Annotated[list[int], about("first, last (exclusive), number evaluated")]
    per_switch: Annotated[str, about("equal or different seeds on the switches")]
    measure: Annotated[str, about("fim-flows, fim-bytes (percent) or max-over-mean")]
    distribution: Annotated[Distribution, about("worst layer of each seed")]
    chance: Chance
    best: list[SeedValue]
    worst: list[SeedValue]
    production: Production | None
    layers: list[SweepLayer]
    findings: list[str]
    warnings: list[str]
