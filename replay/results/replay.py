"""What replay, sweep and recover-seed find: immutable records with a versioned schema.

Field names are those of the JSON output. Sizes are bytes on the wire, times
nanoseconds. A value that cannot be known is None, and a note says why.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .packets import PacketReplay

SCHEMA_VERSION = "1.1"


class Record(msgspec.Struct, frozen=True):
    """Base of all result records."""


class TrafficSummary(Record, frozen=True, kw_only=True):
    """What was replayed."""

    sources: Annotated[list[str], Meta(description="the captures, or the pattern generated")]
    flows: Annotated[int, Meta(description="one-way flows")]
    units: Annotated[
        int, Meta(description="what is placed: a flow, or one entropy value of a sprayed flow")
    ]
    packets: int
    wire_bytes: int
    hosts: Annotated[int, Meta(description="hosts that send or receive")]
    window_ns: Annotated[int | None, Meta(description="None: loads are not resolved in time")]


class FabricSummary(Record, frozen=True, kw_only=True):
    """Where it was replayed."""

    spec: str
    hosts: int
    switches: int
    links: Annotated[int, Meta(description="one-way links that are up")]
    links_down: int


class Chance(Record, frozen=True, kw_only=True):
    """What ideal random hashing gives for the same traffic on the same fabric."""

    mean: float
    p05: float
    p95: float
    draws: int


class LayerOverTime(Record, frozen=True, kw_only=True):
    """Loads window by window: flows that never overlap in time do not collide."""

    window_ns: int
    windows: Annotated[int, Meta(description="windows in which the layer carried bytes")]
    fim_bytes_percent: Annotated[float, Meta(description="mean, weighted by the windows' bytes")]
    max_over_mean: Annotated[float, Meta(description="mean, weighted by the windows' bytes")]
    peak_bits_per_second: Annotated[float, Meta(description="busiest window of the busiest link")]
    peak_utilisation: Annotated[float, Meta(description="the same over the rate of the link")]
    peak_link: str


class DeviceLoad(Record, frozen=True, kw_only=True):
    """How evenly one switch uses its links of a layer, those that leave it."""

    switch: str
    links: int
    flows: int
    fim_flows_percent: float | None
    fim_flows_best_percent: float | None
    fim_bytes_percent: float | None
    max_over_mean: float | None


class LayerLoad(Record, frozen=True, kw_only=True):
    """How evenly the links of one layer and one direction are used."""

    layer: str
    choice: Annotated[bool, Meta(description="whether hashing has a say in these loads")]
    links: int
    idle_links: int
    flows: Annotated[
        int | None,
        Meta(description="placements: a flow on two links counts twice; None: packet by packet"),
    ]
    wire_bytes: int
    fim_flows_percent: float | None
    fim_flows_best_percent: Annotated[
        float | None, Meta(description="what no placement of whole flows can beat")
    ]
    fim_bytes_percent: float | None
    fim_chance_percent: Annotated[Chance | None, Meta(description="of fim_flows_percent")]
    max_over_mean: Annotated[
        float | None, Meta(description="the fullest link's load over the largest fair share")
    ]
    over_time: LayerOverTime | None
    devices: Annotated[
        list[DeviceLoad], Meta(description="switches with several links of the layer to choose")
    ]


class LinkLoad(Record, frozen=True, kw_only=True):
    """What one one-way link carries."""

    name: str
    layer: str
    flows: Annotated[int | None, Meta(description="None: flows are not kept to one path")]
    wire_bytes: int
    over_mean: Annotated[
        float | None,
        Meta(description="bytes over its fair share: what it carried if all was split evenly"),
    ]
    wire_bytes_over_time: Annotated[
        list[int] | None,
        Meta(description="in stretches of packets.load_stretch_ns, first run; None: whole flows"),
    ] = None


class CollidingFlow(Record, frozen=True, kw_only=True):
    """One flow on a crowded link."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    wire_bytes: int


class Collision(Record, frozen=True, kw_only=True):
    """A link with more than its share, and what meets there."""

    link: str
    layer: str
    wire_bytes: int
    over_mean: float
    flows: Annotated[int, Meta(description="all flows on the link")]
    flows_at_once: Annotated[
        int | None, Meta(description="most flows in one window; None without windows")
    ]
    largest: Annotated[list[CollidingFlow], Meta(description="the flows with the most bytes")]


class StrategyResult(Record, frozen=True, kw_only=True):
    """One strategy on this traffic."""

    name: str
    parameters: dict[str, str]
    fim_percent: Annotated[
        float | None, Meta(description="of flows, of the worst layer in which hashing has a say")
    ]
    max_over_mean: Annotated[float | None, Meta(description="of the same layers, the largest")]
    busiest_link: str | None
    lower_bound_ns: Annotated[
        float | None,
        Meta(
            description="time the busiest link needs for its bytes at its rate; on the packet "
            "engine what no load balancing can beat, see packets.bound"
        ),
    ]
    completion_time_ns: Annotated[
        int | None, Meta(description="mean of the runs; None: not complete, or whole flows only")
    ]
    max_queue_packets: int | None
    layers: list[LayerLoad]
    links: list[LinkLoad]
    worst: list[Collision]
    solver: Annotated[SolverReport | None, Meta(description="of the assignment, else None")] = None
    packets: Annotated[
        PacketReplay | None, Meta(description="of the packet engine; None: whole flows only")
    ] = None
    notes: list[str] = []


class SolverReport(Record, frozen=True, kw_only=True):
    """How good a computed assignment provably is."""

    status: str
    objective: Annotated[float, Meta(description="seconds the busiest link is busy")]
    bound: Annotated[float, Meta(description="no assignment can be below")]
    gap: Annotated[float, Meta(description="(objective - bound) / objective")]
    seconds: float
    variables: int


class ReplayResult(Record, frozen=True, kw_only=True):
    """The result of `replay`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    strategies: list[StrategyResult]
    warnings: list[str]


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
    resolution: Annotated[float, Meta(description="quantiles are exact to this")]
    histogram: list[Bin]
    distinct: Annotated[
        int | None, Meta(description="different values; None: more than are counted")
    ]


class SeedValue(Record, frozen=True, kw_only=True):
    """A seed and its imbalance."""

    seed: int
    value: float


class Production(Record, frozen=True, kw_only=True):
    """Where the seed in use stands among all others."""

    seed: Annotated[int | None, Meta(description="None: the fabric's own, one per switch")]
    value: float
    better_seeds: Annotated[int, Meta(description="seeds with a smaller value")]
    equal_seeds: Annotated[int, Meta(description="seeds with the same value")]
    percentile: Annotated[float, Meta(description="share of the seeds that are worse, percent")]


class SweepLayer(Record, frozen=True, kw_only=True):
    """The distribution for one layer and direction."""

    layer: str
    links: int
    distribution: Distribution
    chance: Chance
    best_percent: Annotated[
        float | None, Meta(description="FIM of flows that no placement can beat; None for bytes")
    ]
    used_links: Annotated[float, Meta(description="share of links that carry traffic, mean")]
    used_links_chance: float


class SweepResult(Record, frozen=True, kw_only=True):
    """The result of `sweep`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    hash: Annotated[str, Meta(description="model of the switches")]
    field_set: str
    seeds: Annotated[list[int], Meta(description="first, last (exclusive), number evaluated")]
    per_switch: Annotated[str, Meta(description="equal or different seeds on the switches")]
    measure: Annotated[str, Meta(description="fim-flows, fim-bytes (percent) or max-over-mean")]
    distribution: Annotated[Distribution, Meta(description="of the worst layer of each seed")]
    chance: Chance
    best: list[SeedValue]
    worst: list[SeedValue]
    production: Production | None
    layers: list[SweepLayer]
    findings: list[str]
    warnings: list[str]


class Candidate(Record, frozen=True, kw_only=True):
    """A hash function, field set and seed that explains the placements."""

    hash: str
    field_set: str
    parameters: dict[str, str]
    seed: Annotated[int | None, Meta(description="the smallest seed that fits; None: no seed")]
    seeds: Annotated[list[int], Meta(description="seeds that fit, the first ones")]
    seeds_that_fit: Annotated[int, Meta(description="of the seeds searched")]
    seeds_searched: int
    expected_by_chance: Annotated[
        float, Meta(description="seeds that would fit if the function were another one")
    ]
    fitted_flows: int
    validated_flows: Annotated[int, Meta(description="held-back flows it predicts")]
    held_back_flows: int
    note: str = ""


class SwitchRecovery(Record, frozen=True, kw_only=True):
    """The choices of one switch over the tapped links."""

    direction: Annotated[str, Meta(description="whose packets were looked at")]
    links: list[str]
    flows: Annotated[int, Meta(description="flows seen on exactly one of the links")]
    flows_on_several_links: Annotated[
        int, Meta(description="sprayed or moved while captured; not used")
    ]
    flows_per_link: list[int]
    candidates: list[Candidate]
    conclusion: str


class RecoverResult(Record, frozen=True, kw_only=True):
    """The result of `recover-seed`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    sources: list[str]
    switches: list[SwitchRecovery]
    tried: Annotated[list[str], Meta(description="hash functions and field sets tried")]
    warnings: list[str]
