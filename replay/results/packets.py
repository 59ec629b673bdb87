"""Results of the packet engine, in addition to the records of `replay.py`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...analyzer.results.base import about


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
