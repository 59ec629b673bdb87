"""Results of `replay`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .base import SCHEMA_VERSION, Chance, FabricSummary, Record, TrafficSummary
from .packets import PacketReplay, Spread

SeedOrigin: TypeAlias = Literal["fabric", "option", "default"]


class SwitchHash(Record, frozen=True, kw_only=True):
    """The hash of one switch in a replay."""

    switch: str
    hash: str
    fields: Annotated[str, Meta(description="field set, or the policy of Linux")]
    seed: int
    seed_from: Annotated[
        SeedOrigin,
        Meta(description="the fabric file, an option, or the default: the file sets no hash"),
    ]


_DATA_FLOWS = Meta(description="placements of flows that are not ACKs and CNPs only")
_FIM_FLOWS = Meta(
    description="of flows with data and the links they can reach, as in analyze; of all flows if "
    "none has data"
)
_FIM_ALL_FLOWS = Meta(
    description="of all flows, those with only ACKs or CNPs included; null: equal to "
    "fim_flows_percent"
)


class LayerOverTime(Record, frozen=True, kw_only=True):
    """Loads per time window: flows that do not overlap in time do not collide."""

    window_ns: int
    windows: Annotated[int, Meta(description="windows in which the layer carries bytes")]
    fim_bytes_percent: Annotated[float, Meta(description="mean over windows, weighted by bytes")]
    max_over_mean: Annotated[float, Meta(description="mean over windows, weighted by bytes")]
    peak_bits_per_second: Annotated[
        float, Meta(description="of the busiest link in its busiest window")
    ]
    peak_utilisation: Annotated[float, Meta(description="peak rate over the rate of the link")]
    peak_link: str


class DeviceLoad(Record, frozen=True, kw_only=True):
    """How evenly one switch uses its outgoing links of a layer."""

    switch: str
    links: int
    flows: int
    data_flows: Annotated[int, _DATA_FLOWS]
    fim_flows_percent: Annotated[float | None, _FIM_FLOWS]
    fim_all_flows_percent: Annotated[float | None, _FIM_ALL_FLOWS]
    fim_flows_best_percent: float | None
    fim_bytes_percent: float | None
    max_over_mean: float | None


AS_CAPTURED: Final = "as captured"
"""Name of the row of the loads that the captured links really carried."""


class LayerLoad(Record, frozen=True, kw_only=True):
    """How evenly the links of one layer and one direction are used."""

    layer: str
    choice: Annotated[bool, Meta(description="whether hashing chooses between these links")]
    links: int
    idle_links: int
    flows: Annotated[
        int | None,
        Meta(description="placements: a flow on two links counts twice; null: packet engine"),
    ]
    data_flows: Annotated[int | None, _DATA_FLOWS]
    wire_bytes: int
    fim_flows_percent: Annotated[float | None, _FIM_FLOWS]
    fim_all_flows_percent: Annotated[float | None, _FIM_ALL_FLOWS]
    fim_flows_best_percent: Annotated[
        float | None, Meta(description="lower limit for any placement of whole flows")
    ]
    fim_bytes_percent: float | None
    fim_chance_percent: Annotated[Chance | None, Meta(description="of fim_flows_percent")]
    max_over_mean: Annotated[
        float | None, Meta(description="load of the busiest link over the largest fair share")
    ]
    over_time: LayerOverTime | None
    devices: Annotated[
        list[DeviceLoad], Meta(description="switches with several links of the layer")
    ]


class LinkLoad(Record, frozen=True, kw_only=True):
    """Load of one one-way link."""

    name: str
    layer: str
    flows: Annotated[int | None, Meta(description="null: flows do not stay on one path")]
    wire_bytes: int
    over_mean: Annotated[
        float | None,
        Meta(description="bytes over its fair share, which is its load with an even split"),
    ]
    wire_bytes_over_time: Annotated[
        list[int] | None,
        Meta(description="bytes per packets.load_stretch_ns in the first run; null: whole flows"),
    ] = None
    queue_bytes_over_time: Annotated[
        list[int] | None,
        Meta(
            description="longest queue of each of these intervals, packet in service included, 0 "
            "if no packet waited; null: whole flows"
        ),
    ] = None


class CollidingFlow(Record, frozen=True, kw_only=True):
    """One flow on an overloaded link."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    wire_bytes: int
    src_rank: Annotated[int | None, Meta(description="rank that sends, from logs")] = None
    dst_rank: Annotated[int | None, Meta(description="rank that receives, from logs")] = None
    comm: Annotated[str | None, Meta(description="communicator, from logs")] = None


class Collision(Record, frozen=True, kw_only=True):
    """A link with more than its fair share, and its flows."""

    link: str
    layer: str
    wire_bytes: int
    over_mean: float
    flows: Annotated[int, Meta(description="all flows on the link")]
    flows_at_once: Annotated[
        int | None, Meta(description="maximum number of flows in one window; null without windows")
    ]
    largest: Annotated[
        list[CollidingFlow],
        Meta(description="the flows with the most bytes, `flows` in all; more with --top"),
    ]


class FlowPath(Record, frozen=True, kw_only=True):
    """The path of a flow, or of one entropy value of a sprayed flow."""

    flow: int
    src: str
    dst: str
    src_host: str
    dst_host: str
    src_port: int
    flow_label: int
    dest_qp: int
    packets: int
    wire_bytes: int
    links: Annotated[
        list[str] | None, Meta(description="from source to destination; null: it has no path")
    ]
    src_rank: Annotated[int | None, Meta(description="rank that sends, from logs")] = None
    dst_rank: Annotated[int | None, Meta(description="rank that receives, from logs")] = None
    comm: Annotated[str | None, Meta(description="communicator, from logs")] = None


class StrategyResult(Record, frozen=True, kw_only=True):
    """Results of one strategy on this traffic."""

    name: str
    title: Annotated[
        str, Meta(description="the name, with the parameters that distinguish the strategy")
    ]
    parameters: dict[str, str]
    fim_percent: Annotated[
        float | None, Meta(description="FIM of flows in the worst layer in which hashing chooses")
    ]
    max_over_mean: Annotated[float | None, Meta(description="largest value of the same layers")]
    busiest_link: str | None
    lower_bound_ns: Annotated[
        float | None,
        Meta(
            description="transmission time of the busiest link at its rate; on the packet "
            "engine the minimum of any load balancing, see packets.bound"
        ),
    ]
    completion_time_ns: Annotated[
        int | None, Meta(description="mean of the runs; null: not completed, or whole flows")
    ]
    max_queue_packets: int | None
    layers: list[LayerLoad]
    links: list[LinkLoad]
    worst: Annotated[list[Collision], Meta(description="the fullest links; more with --top")]
    worst_omitted: Annotated[
        int, Meta(description="links with a choice and with load that `worst` omits")
    ] = 0
    paths: Annotated[
        list[FlowPath],
        Meta(description="of every flow, the largest first; of whole flows only"),
    ] = []
    paths_omitted: Annotated[
        int, Meta(description="flows that `paths` omits: it holds the largest 65,536")
    ] = 0
    solver: Annotated[SolverReport | None, Meta(description="only of assign")] = None
    packets: Annotated[
        PacketReplay | None, Meta(description="results of the packet engine; null: whole flows")
    ] = None
    switches: Annotated[
        list[SwitchHash],
        Meta(description="hash per switch; empty if the fabric sets none, or without hashing"),
    ] = []
    notes: list[str] = []


class SolverReport(Record, frozen=True, kw_only=True):
    """Proven quality of a computed assignment."""

    status: str
    objective: Annotated[float, Meta(description="transmission time of the busiest link, s")]
    bound: Annotated[float, Meta(description="lower bound of any assignment")]
    gap: Annotated[float, Meta(description="(objective - bound) / objective")]
    seconds: float
    variables: int


class VariedStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under one combination of `--vary`; None without the packet engine."""

    name: str
    title: Annotated[str, Meta(description="as in `strategies`")]
    parameters: dict[str, str]
    completion_ns: Annotated[Spread | None, Meta(description="time of the completed runs")]
    over_bound_percent: Spread | None
    max_queue_packets: Annotated[float | None, Meta(description="mean of the runs")]
    lost_packets: Annotated[int | None, Meta(description="dropped or lost on links, all runs")]
    retransmitted_packets: int | None
    pauses: Annotated[int | None, Meta(description="null without PFC")]
    max_over_mean: Annotated[float | None, Meta(description="as in `strategies`")]
    busy_ns: Annotated[float | None, Meta(description="`lower_bound_ns` of `strategies`")]
    jobs_ns: Annotated[
        dict[str, float | None], Meta(description="mean completion time of each job")
    ]

    @property
    def by_packet(self) -> bool:
        """Whether the packet engine replayed it."""
        return self.max_queue_packets is not None

    @property
    def compared_ns(self) -> Spread | None:
        """What cases are compared by: completion, or of whole flows the time for which the busiest
        link is busy; None: not completed."""
        busy = self.busy_ns
        if self.by_packet or busy is None:
            return self.completion_ns
        return Spread(min=busy, mean=busy, max=busy)


def short_titles(strategies: Sequence[StrategyResult] | Sequence[VariedStrategy]) -> list[str]:
    """The name of each strategy of a result; its title where several have this name."""
    names = Counter(one.name for one in strategies)
    return [one.name if names[one.name] == 1 else one.title for one in strategies]


class VariedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the values of `--vary`."""

    settings: Annotated[dict[str, str], Meta(description="value by parameter")]
    strategies: list[VariedStrategy]


class ReplayResult(Record, frozen=True, kw_only=True):
    """The result of `replay`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    strategies: Annotated[
        list[StrategyResult], Meta(description="of the first combination with `--vary`")
    ]
    warnings: list[str]
    varied: Annotated[
        list[VariedResult], Meta(description="one per combination of `--vary`; empty without")
    ] = []
