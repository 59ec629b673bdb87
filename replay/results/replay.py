"""What `replay` finds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import SCHEMA_VERSION, Chance, FabricSummary, Record, TrafficSummary
from .packets import PacketReplay


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
