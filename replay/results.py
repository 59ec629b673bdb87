"""The results of replays: strategies, packets, seeds, aggregation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from ..analyzer.results.base import Record, about

# Records common to the results of replay, sweep and recover-seed.
#
# Field names are the names of the JSON output. Sizes are bytes on the wire, times are
# nanoseconds. An unknown value is None, and a note gives the reason.

SCHEMA_VERSION = "2.0"
EXACT = "addresses of the fabric"
"""`HostMapping.rule` of the addresses of the fabric itself."""


CAPTURED, ASAP, CLOSED = OFFERS = ("captured", "asap", "closed")
"""`--offer`: captured packets at their times; as fast as the links accept them, each message after
what it waited for; or in a closed loop, which also keeps the time between the two."""


class HostMapping(Record, frozen=True, kw_only=True):
    """Hosts of the fabric that the addresses of a capture belong to."""

    rule: str
    hosts: Annotated[dict[str, str], about("host by address")]


class LinkEvidence(Record, frozen=True, kw_only=True):
    """Captured queue pairs that wait for other queue pairs of their host (asap, closed)."""

    queue_pairs: Annotated[int, about("queue pairs that wait for others")]
    messages_tested: Annotated[int, about("messages of these queue pairs after the first arrival")]
    messages_fixed: Annotated[
        int, about("of them, those that leave a fixed time after a message arrives")
    ]
    fixed_percent: Annotated[float | None, about("share; null: no queue pair waits")]
    median_gap_ns: Annotated[
        float | None, about("from an arrival to the message that waits for it; null: none waits")
    ]
    pairs_not_compared: Annotated[int, about("pairs of queue pairs that were not compared")]


class TrafficSummary(Record, frozen=True, kw_only=True):
    """The replayed traffic."""

    sources: Annotated[list[str], about("the captures, or the generated pattern")]
    flows: Annotated[int, about("one-way flows")]
    units: Annotated[int, about("placed units: flows, or entropy values of sprayed flows")]
    packets: int
    wire_bytes: int
    hosts: Annotated[int, about("hosts that send or receive")]
    window_ns: Annotated[int | None, about("length of time windows; null: no windows")]
    captured_ns: Annotated[
        int | None, about("from the first captured packet to the last; null: generated traffic")
    ] = None
    mapping: Annotated[HostMapping | None, about("null: generated traffic")] = None
    linked: Annotated[
        LinkEvidence | None, about("of captures offered as fast as possible; null: not searched")
    ] = None


class FabricSummary(Record, frozen=True, kw_only=True):
    """The fabric of the replay."""

    spec: str
    hosts: int
    switches: int
    links: Annotated[int, about("one-way links that are up")]
    links_down: int


class Chance(Record, frozen=True, kw_only=True):
    """Results of ideal random hashing for the same traffic on the same fabric."""

    mean: float
    p05: float
    p95: float
    draws: int


# Results of the packet engine, in addition to the records of `replay`.


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One measure over all runs."""

    min: float
    mean: float
    max: float


class LayerQueues(msgspec.Struct, frozen=True, kw_only=True):
    """Queues of the links of one layer and direction, over all runs."""

    layer: str
    p50_packets: Annotated[int, about("median queue length at packet arrival, ACKs included")]
    p99_packets: int
    max_packets: Annotated[int, about("largest queue, with the packet in service")]
    max_bytes: int
    dropped: int
    trimmed: int
    ecn_marked: int


class FlowTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Completion time of a message relative to an idle fabric, over all messages and runs."""

    p50: float
    p99: float
    max: float


class FlowCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one flow (queue pair) in the first run, from the start of the traffic."""

    flow: int
    src: Annotated[str, about("host that sends")]
    dst: str
    messages: int
    wire_bytes: int
    started_ns: Annotated[float | None, about("first packet leaves; null: never")]
    completed_ns: Annotated[float | None, about("last ACK at the sender; null: not completed")]
    failed_ns: Annotated[
        float | None, about("its sender gave up after its retries; null: it did not")
    ] = None
    priority: Annotated[str, about("class of data")] = "data"


class ReceivedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Reordering of data packets at receivers in the first run (RFC 4737)."""

    packets: int
    reordered_packets: int
    reordered_percent: float
    max_extent: Annotated[int | None, about("extent of RFC 4737 in packets; null: no reordering")]


class PausedPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port and class of data that PFC paused in the first run."""

    port: Annotated[str, about("the link that the port sends to")]
    layer: str
    priority: Annotated[str, about("class of data that was paused")] = "data"
    frames: Annotated[int, about("pause frames that began or repeated a pause")] = 0
    storm_ns: Annotated[
        int | None, about("when the port's first pause storm was detected; null: no storm")
    ] = None
    pauses: int
    paused_ns: Annotated[int, about("time in pauses, all together")]
    longest_ns: int
    endless: Annotated[
        bool, about("it never ends (deadlock): the times count up to the last event")
    ] = False
    victims: Annotated[
        int | None, about("flows that waited here and use no causing link; null: unknown")
    ]


class PausedPriority(msgspec.Struct, frozen=True, kw_only=True):
    """What PFC did to one class of data, in all runs."""

    priority: str
    pauses: int
    paused_ns: int
    frames: Annotated[int, about("pause frames that began or repeated a pause")]
    lost_without_headroom: int


class PauseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What PFC did."""

    pauses: Annotated[int, about("of all ports, all runs")]
    paused_ns: Annotated[int, about("time in pauses of all ports, all runs")]
    lost_without_headroom: Annotated[
        int, about("packets dropped because a port's headroom was full, all runs")
    ]
    victim_flows: Annotated[int | None, about("flows that are victims at any port, first run")]
    causes: Annotated[
        list[str], about("links whose queues caused pauses in the first run, most pauses first")
    ]
    ports: Annotated[list[PausedPort], about("longest time in pauses first")]
    priorities: Annotated[list[PausedPriority], about("by class of data")] = []
    storm_after_ns: Annotated[
        int, about("a port that is paused for so long without a break is in a storm")
    ] = 0
    storms: Annotated[
        list[PausedPort], about("ports in pause storms in the first run, earliest first")
    ] = []
    settings: Annotated[
        dict[str, str], about("of --lossless pfc, defaults filled in; sizes from least to most")
    ] = {}
    deadlocked_runs: int
    deadlock: Annotated[
        list[str], about("ports of a cycle, each waits for the next; first such run")
    ]


class JobCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """One job (`--jobs`), over all runs."""

    name: str
    workers: int
    start_ns: Annotated[float, about("from the start of the traffic, first run")]
    completed_runs: int
    completion_ns: Annotated[
        Spread | None, about("start to the last ACK of its messages and the last computation")
    ]
    over_bound_percent: Annotated[
        Spread | None, about("completion above the lower bound of the job alone on an idle fabric")
    ]
    iteration_ns: Annotated[Spread | None, about("of single iterations; null: there is one")]
    priority: Annotated[str, about("class of its data")] = "data"


class PacketReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a strategy on the packet engine."""

    runs: int
    completed_runs: Annotated[int, about("runs in which every message completed")]
    completion_ns: Annotated[Spread | None, about("time of the completed runs")]
    over_bound_percent: Annotated[
        Spread | None, about("completion time above the lower bound of the same run")
    ]
    bound: Annotated[str, about("what the lower bound takes into account")]
    message_slowdown: Annotated[
        FlowTimes | None, about("first packet to last ACK, relative to an idle fabric")
    ]
    flows: Annotated[
        list[FlowCompletion], about("the flows of the first run, the latest first")
    ] = []
    jobs: Annotated[list[JobCompletion], about("job completion times; empty without jobs")] = []
    flows_omitted: Annotated[int, about("flows that `flows` omits: it holds the latest 65,536")] = 0
    max_queue_packets: Spread
    layers: list[LayerQueues]
    hops: Annotated[int, about("packets through queues, ACKs included, all runs")]
    dropped: int
    trimmed: int
    ecn_marked: int
    no_route: int
    lost_on_links: Annotated[int, about("packets lost on lossy or failed links")]
    sent_again: Annotated[int, about("retransmitted data packets")]
    timeouts: int
    failed_flows: Annotated[
        int, about("flows whose sender gave up after its retries, all runs")
    ] = 0
    load_stretch_ns: Annotated[
        int, about("interval of wire_bytes_over_time, from the first packet")
    ]
    pfc: Annotated[PauseSummary | None, about("null without PFC")]
    received: Annotated[ReceivedOrder | None, about("null: too many packets to measure")]
    model: Annotated[dict[str, str], about("sizes, buffers, thresholds, offer, recovery, failures")]


# Results of `replay`.

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
    worst: Annotated[list[Collision], about("the busiest links; more with --top")]
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
    names = Counter(strategy.name for strategy in strategies)
    return [
        strategy.name if names[strategy.name] == 1 else strategy.title for strategy in strategies
    ]


class VariedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the values of `--vary`."""

    settings: Annotated[dict[str, str], about("value by parameter")]
    strategies: list[VariedStrategy]


class Decision(Record, frozen=True, kw_only=True):
    """What another strategy saves, and the cheapest that brings most of it."""

    lines: Annotated[list[str], about("the decision in words, at most five lines")]
    unit: Annotated[
        str, about("what is compared: step, completion, or busiest link: how long it is busy")
    ]
    baseline: Annotated[str, about("strategy that the others are compared with")]
    baseline_ns: Annotated[float, about("its time, mean of the runs")]
    best: Annotated[str | None, about("the fastest strategy; null: none differs from the baseline")]
    saved_ns: Annotated[float | None, about("time that the best strategy saves")]
    saved_percent: float | None
    cheapest: Annotated[
        str | None, about("strategy of least effort that saves at least half of this")
    ]


class ReplayResult(Record, frozen=True, kw_only=True):
    """The result of `replay`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    decision: Annotated[
        Decision | None, about("null: no strategy has a time, or several cases with `--vary`")
    ] = None
    traffic: TrafficSummary
    fabric: FabricSummary
    strategies: Annotated[list[StrategyResult], about("of the first combination with `--vary`")]
    warnings: list[str]
    varied: Annotated[
        list[VariedResult], about("one per combination of `--vary`; empty without")
    ] = []


# Results of `recover-seed`.


class Candidate(Record, frozen=True, kw_only=True):
    """A hash function, field set and seed that explain the placements."""

    hash: str
    field_set: str
    parameters: dict[str, str]
    seed: Annotated[int | None, about("the smallest seed that fits; null: no seed")]
    seeds: Annotated[list[int], about("the first seeds that fit")]
    seeds_that_fit: Annotated[int, about("number of searched seeds that fit")]
    seeds_searched: int
    hypotheses: Annotated[int, about("hashes with their fields that may be tried")]
    expected_by_chance: Annotated[
        float,
        about(
            "different placements that would fit all flows by chance, over all "
            "hypotheses; a claim needs less than 0.001"
        ),
    ]
    fitted_flows: int
    validated_flows: Annotated[int, about("held-back flows that the candidate predicts")]
    held_back_flows: int
    note: str = ""


class SwitchRecovery(Record, frozen=True, kw_only=True):
    """Recovery of the choices of one switch over the captured links."""

    direction: Annotated[str, about("direction of the packets used")]
    links: list[str]
    flows: Annotated[int, about("flows seen on exactly one of the links")]
    flows_on_several_links: Annotated[
        int, about("flows sprayed or moved during the capture; not used")
    ]
    flows_per_link: list[int]
    candidates: list[Candidate]
    flows_needed: Annotated[
        dict[str, int],
        about("hashes that may fit these flows by chance: number of flows that would suffice"),
    ]
    conclusion: str
    asked_again: Annotated[
        int | None,
        about("answers of the switch about other flows; null: not asked, or no hash with a seed"),
    ] = None
    agreeing_again: Annotated[
        int | None,
        about(
            "of these, with the link that the candidate computes; others name another "
            "link or a port outside the group"
        ),
    ] = None


class RecoverResult(Record, frozen=True, kw_only=True):
    """The result of `recover-seed`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    sources: list[str]
    switches: list[SwitchRecovery]
    tried: Annotated[list[str], about("hash functions and field sets tried")]
    warnings: list[str]


# Results of `sweep`.


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
    decision: Annotated[str, about("what another seed changes, in words")]
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


# Results of `aggregate`.

ALL_REDUCES = ("ring", "tree")
"""Names of results that are no scheme: collectives of the workers alone."""


class JobSummary(Record, frozen=True, kw_only=True):
    """A job and its hosts."""

    name: str
    workers: list[str]
    server: Annotated[str, about("host of the parameter server")]
    racks: Annotated[int, about("switches with workers of the job")]
    fragments: Annotated[int, about("packets of gradients per worker and iteration")]
    layers: int
    compute_ns: Annotated[int, about("computing of an iteration, without jitter")]
    iterations: int
    window: Annotated[int, about("packets in flight of a worker, at most")]
    start_ns: int
    captured_ns: Annotated[int | None, about("its time in the capture; null: not captured")]
    ranks: Annotated[
        list[list[int]],
        about("ranks of each worker in the capture, from logs; empty: none is known"),
    ]


class JobOutcome(Record, frozen=True, kw_only=True):
    """A job under one scheme; counts are means over the runs."""

    name: str
    completion_ns: Annotated[
        float | None, about("from its start; null: a run ended before the job")
    ]
    sent: Annotated[float, about("gradients of all workers, first transmissions")]
    retransmitted: float
    timeouts: float
    aggregated_percent: Annotated[
        float, about("fragments of which the server got one packet, with all values")
    ]
    server_packets: Annotated[float, about("gradient packets that reached the server")]
    collisions: Annotated[float, about("gradients that found their slot taken")]
    preemptions: Annotated[float, about("slots taken from other fragments")]
    evicted: Annotated[float, about("its partial sums that lost their slot")]
    reminders: Annotated[float, about("partial sums the server asked switches for")]


class Occupancy(Record, frozen=True, kw_only=True):
    """Memory over time, as percent of the slots of all switches with memory."""

    bin_ns: float
    used_percent: list[float]
    useful_percent: Annotated[list[float], about("slots whose sum became complete in the switch")]


class LinkBytes(Record, frozen=True, kw_only=True):
    """A link and what it carried."""

    link: str
    wire_bytes: float


class SchemeResult(Record, frozen=True, kw_only=True):
    """One scheme with one size of memory."""

    name: str
    parameters: dict[str, str]
    slots: Annotated[int | None, about("of each switch; null: the scheme has no such limit")]
    mean_completion_ns: Annotated[
        float | None, about("mean over jobs and runs; null: a job did not end")
    ]
    least_completion_ns: Annotated[float | None, about("smallest mean of a run")]
    most_completion_ns: float | None
    jobs: list[JobOutcome]
    used_percent: Annotated[
        float | None, about("mean of the slots taken; null: no limit, or fixed shares")
    ]
    useful_percent: float | None
    occupancy: Annotated[Occupancy | None, about("of the first run")]
    lost: Annotated[float, about("packets lost on links and in full buffers")]
    wire_bytes: Annotated[float, about("over all links, each link counts")]
    hops: int
    links: Annotated[list[LinkBytes], about("all links that carried a packet")]


class AggregationResult(Record, frozen=True, kw_only=True):
    """The result of `aggregate`."""

    schema_version: str = SCHEMA_VERSION
    version: str
    fabric: FabricSummary
    jobs: list[JobSummary]
    runs: Annotated[int, about("runs with different seeds")]
    jitter: Annotated[float, about("compute times vary by up to this share")]
    schemes: list[SchemeResult]
    assumed: Annotated[list[str], about("what no published text gives")]
    warnings: list[str]
