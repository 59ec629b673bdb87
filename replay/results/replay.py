"""Results of `replay`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from ...analyzer.results.base import Record, about
from .base import SCHEMA_VERSION, Chance, FabricSummary, TrafficSummary
from .packets import PacketReplay, Spread

SeedOrigin: TypeAlias = Literal["fabric", "option", "default"]


class SwitchHash(Record, frozen=True, kw_only=True):
    """The hash of one switch in a replay."""

    switch: str
    hash: str
    fields: Annotated[str, about("field set, or the policy of Linux")]
    seed: int
    seed_from: Annotated[
        SeedOrigin, about("the fabric file, an option, or the default: the file sets no hash")
    ]


_DATA_FLOWS = about("placements of flows that are not ACKs and CNPs only")
_FIM_FLOWS = about(
    "of flows with data and the links they can reach, as in analyze; of all flows if none has data"
)
_FIM_ALL_FLOWS = about(
    "of all flows, those with only ACKs or CNPs included; null: equal to fim_flows_percent"
)


class LayerOverTime(Record, frozen=True, kw_only=True):
    """Loads per time window: flows that do not overlap in time do not collide."""

    window_ns: int
    windows: Annotated[int, about("windows in which the layer carries bytes")]
    fim_bytes_percent: Annotated[float, about("mean over windows, weighted by bytes")]
    max_over_mean: Annotated[float, about("mean over windows, weighted by bytes")]
    peak_bits_per_second: Annotated[float, about("of the busiest link in its busiest window")]
    peak_utilisation: Annotated[float, about("peak rate over the rate of the link")]
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
    choice: Annotated[bool, about("whether hashing chooses between these links")]
    links: int
    idle_links: int
    flows: Annotated[
        int | None, about("placements: a flow on two links counts twice; null: packet engine")
    ]
    data_flows: Annotated[int | None, _DATA_FLOWS]
    wire_bytes: int
    fim_flows_percent: Annotated[float | None, _FIM_FLOWS]
    fim_all_flows_percent: Annotated[float | None, _FIM_ALL_FLOWS]
    fim_flows_best_percent: Annotated[
        float | None, about("lower limit for any placement of whole flows")
    ]
    fim_bytes_percent: float | None
    fim_chance_percent: Annotated[Chance | None, about("of fim_flows_percent")]
    max_over_mean: Annotated[
        float | None, about("load of the busiest link over the largest fair share")
    ]
    over_time: LayerOverTime | None
    devices: Annotated[list[DeviceLoad], about("switches with several links of the layer")]


class LinkLoad(Record, frozen=True, kw_only=True):
    """Load of one one-way link."""

    name: str
    layer: str
    flows: Annotated[int | None, about("null: flows do not stay on one path")]
    wire_bytes: int
    over_mean: Annotated[
        float | None, about("bytes over its fair share, which is its load with an even split")
    ]
    wire_bytes_over_time: Annotated[
        list[int] | None,
        about("bytes per packets.load_stretch_ns in the first run; null: whole flows"),
    ] = None
    queue_bytes_over_time: Annotated[
        list[int] | None,
        about(
            "longest queue of each of these intervals, packet in service included, 0 "
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
    src_rank: Annotated[int | None, about("rank that sends, from logs")] = None
    dst_rank: Annotated[int | None, about("rank that receives, from logs")] = None
    comm: Annotated[str | None, about("communicator, from logs")] = None


class Collision(Record, frozen=True, kw_only=True):
    """A link with more than its fair share, and its flows."""

    link: str
    layer: str
    wire_bytes: int
    over_mean: float
    flows: Annotated[int, about("all flows on the link")]
    flows_at_once: Annotated[
        int | None, about("maximum number of flows in one window; null without windows")
    ]
    largest: Annotated[
        list[CollidingFlow], about("the flows with the most bytes, `flows` in all; more with --top")
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
    links: Annotated[list[str] | None, about("from source to destination; null: it has no path")]
    src_rank: Annotated[int | None, about("rank that sends, from logs")] = None
    dst_rank: Annotated[int | None, about("rank that receives, from logs")] = None
    comm: Annotated[str | None, about("communicator, from logs")] = None


class StrategyResult(Record, frozen=True, kw_only=True):
    """Results of one strategy on this traffic."""

    name: str
    title: Annotated[str, about("the name, with the parameters that distinguish the strategy")]
    parameters: dict[str, str]
    fim_percent: Annotated[
        float | None, about("FIM of flows in the worst layer in which hashing chooses")
    ]
    max_over_mean: Annotated[float | None, about("largest value of the same layers")]
    busiest_link: str | None
    lower_bound_ns: Annotated[
        float | None,
        about(
            "transmission time of the busiest link at its rate; on the packet "
            "engine the minimum of any load balancing, see packets.bound"
        ),
    ]
    completion_time_ns: Annotated[
        int | None, about("mean of the runs; null: not completed, or whole flows")
    ]
    max_queue_packets: int | None
    layers: list[LayerLoad]
    links: list[LinkLoad]
    worst: Annotated[list[Collision], about("the fullest links; more with --top")]
    worst_omitted: Annotated[int, about("links with a choice and with load that `worst` omits")] = 0
    paths: Annotated[
        list[FlowPath], about("of every flow, the largest first; of whole flows only")
    ] = []
    paths_omitted: Annotated[
        int, about("flows that `paths` omits: it holds the largest 65,536")
    ] = 0
    solver: Annotated[SolverReport | None, about("only of assign")] = None
    packets: Annotated[
        PacketReplay | None, about("results of the packet engine; null: whole flows")
    ] = None
    switches: Annotated[
        list[SwitchHash],
        about("hash per switch; empty if the fabric sets none, or without hashing"),
    ] = []
    notes: list[str] = []


class SolverReport(Record, frozen=True, kw_only=True):
    """Proven quality of a computed assignment."""

    status: str
    objective: Annotated[float, about("transmission time of the busiest link, s")]
    bound: Annotated[float, about("lower bound of any assignment")]
    gap: Annotated[float, about("(objective - bound) / objective")]
    seconds: float
    variables: int


class VariedStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy under one combination of `--vary`; None without the packet engine."""

    name: str
    title: Annotated[str, about("as in `strategies`")]
    parameters: dict[str, str]
    completion_ns: Annotated[Spread | None, about("time of the completed runs")]
    over_bound_percent: Spread | None
    max_queue_packets: Annotated[float | None, about("mean of the runs")]
    lost_packets: Annotated[int | None, about("dropped or lost on links, all runs")]
    retransmitted_packets: int | None
    pauses: Annotated[int | None, about("null without PFC")]
    max_over_mean: Annotated[float | None, about("as in `strategies`")]
    busy_ns: Annotated[float | None, about("`lower_bound_ns` of `strategies`")]
    jobs_ns: Annotated[dict[str, float | None], about("mean completion time of each job")]

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

    settings: Annotated[dict[str, str], about("value by parameter")]
    strategies: list[VariedStrategy]


class ReplayResult(Record, frozen=True, kw_only=True):
    """The result of `replay`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    traffic: TrafficSummary
    fabric: FabricSummary
    strategies: Annotated[list[StrategyResult], about("of the first combination with `--vary`")]
    warnings: list[str]
    varied: Annotated[
        list[VariedResult], about("one per combination of `--vary`; empty without")
    ] = []
