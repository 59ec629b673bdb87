"""Results of `trace`. Field names are the names of the JSON output."""

from __future__ import annotations

from typing import Annotated

from ...analyzer.results.base import Record, about
from ...replay.results import SCHEMA_VERSION, Chance, ReplayResult


class TracedFlow(Record, frozen=True, kw_only=True):
    """A one-way flow, or one entropy value of a flow that sprays."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    packets: Annotated[int | None, about("null: of queue pairs, --hosts")]
    wire_bytes: Annotated[int | None, about("null: of queue pairs, --hosts")]
    complete: Annotated[bool, about("whether the path is known to its destination")]
    links: Annotated[list[str], about("the known links from the source host on")]
    evidence: Annotated[
        list[str],
        about(
            "of every link: captured, single next hop, asked, computed, seed read, or "
            "computed, seed recovered"
        ),
    ]
    ends_at: Annotated[str | None, about("switch where the known path ends early")]
    reason: Annotated[str | None, about("why it ends early")]
    contradicted: Annotated[
        bool, about("a captured link differs from the computed one; the path has it")
    ]
    switch_changed: Annotated[
        bool | None,
        about(
            "the tables of a switch on the known path changed during the trace; null: "
            "not watched, or not all of its switches"
        ),
    ]
    src_qp: Annotated[int | None, about("the queue pair that sends; null: of captures")] = None
    src_process: Annotated[str | None, about("that owns it; null: of captures, or hidden")] = None
    src_pid: int | None = None
    dst_process: Annotated[str | None, about("that owns the receiving queue pair")] = None
    dst_pid: int | None = None
    src_rank: Annotated[
        int | None, about("in the communicator; null: no log of the job names it")
    ] = None
    dst_rank: int | None = None
    comm: Annotated[str | None, about("communicator, from logs of the job")] = None
    inferred: Annotated[list[str], about("which of addresses, peer and src_port are inferred")] = []


class OpenEnd(Record, frozen=True, kw_only=True):
    """A place at which paths end early."""

    switch: str | None
    reason: str
    flows: int


class TapDisagreement(Record, frozen=True, kw_only=True):
    """The first hop at which a flow was captured elsewhere than predicted."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    predicted: str
    captured: Annotated[
        list[str],
        about(
            "links with the packets that leave or enter the same device; empty: the "
            "tap on the predicted link did not see them"
        ),
    ]


class TapCheck(Record, frozen=True, kw_only=True):
    """Predicted hops against captures. The prediction uses tables and hashes only."""

    hops_checked: Annotated[int, about("predicted hops with a tap on their link")]
    hops_agreeing: Annotated[int, about("of these, captured on their link")]
    hops_not_checked: int
    links_not_checked: Annotated[list[str], about("predicted links without a tap")]
    taps_not_used: Annotated[list[str], about("taps whose names match no link")]
    disagreeing_flows: int
    disagreements: Annotated[list[TapDisagreement], about("at most 1000")]


class PortDisagreement(Record, frozen=True, kw_only=True):
    """A port whose counter grew by another amount than predicted."""

    link: str
    device: str
    port: str
    predicted_bytes: int
    measured_bytes: int


class CounterCheck(Record, frozen=True, kw_only=True):
    """Predicted bytes of links against the growth of port counters."""

    links_checked: int
    links_agreeing: int
    links_not_checked: Annotated[
        list[str],
        about(
            "links with predicted flows, or on open paths, that were not compared, "
            "and links on which other traffic could hide a flow"
        ),
    ]
    background_bytes: Annotated[
        int, about("median growth beyond the prediction, at least 0: routing protocols, LLDP")
    ]
    flows_too_small: Annotated[
        int, about("flows that could take other links without a visible difference")
    ]
    disagreements: list[PortDisagreement]


class AskedSwitch(Record, frozen=True, kw_only=True):
    """What a switch was asked about its next hops."""

    switch: str
    questions: int
    answers: int
    computed_too: Annotated[int, about("answers for hops that were also computed")]
    agreeing: Annotated[int, about("of these, with the computed link")]
    problem: Annotated[str | None, about("why answers are missing")]


class AskReport(Record, frozen=True, kw_only=True):
    """Next hops that switches named themselves."""

    mode: Annotated[str, about("sample or all")]
    switches: list[AskedSwitch]
    not_asked: Annotated[dict[str, int], about("hops that were not asked, by reason")]


class AdviceOption(Record, frozen=True, kw_only=True):
    """One kind of change that relieves the busiest link."""

    kind: Annotated[str, about("source ports, seed, or static routes")]
    changes: Annotated[list[str], about("for review; nothing is applied")]
    fullest_link: Annotated[str, about("after the changes")]
    busy_ns: Annotated[float, about("its bytes divided by its rate")]


class Advice(Record, frozen=True, kw_only=True):
    """Changes that relieve the busiest link between switches, the best kind first."""

    fullest_link: Annotated[
        str | None, about("null: no flow with a known path runs between switches")
    ]
    busy_ns: Annotated[float | None, about("its bytes divided by its rate")]
    flows_left_out: Annotated[int, about("their paths are not known")]
    options: list[AdviceOption]


class DeviceFlows(Record, frozen=True, kw_only=True):
    """How many flows one switch puts on its outgoing links of a layer."""

    switch: str
    links: int
    flows: int
    fim_flows_percent: float | None
    fim_flows_best_percent: float | None


class LayerFlows(Record, frozen=True, kw_only=True):
    """How evenly flows use the links of a layer between which hashing chooses."""

    layer: str
    links: int
    idle_links: int
    flows: Annotated[int | None, about("placements")]
    fim_flows_percent: float | None
    fim_flows_best_percent: Annotated[
        float | None, about("lower limit for any placement of whole flows")
    ]
    fim_chance_percent: Chance | None
    devices: list[DeviceFlows]


class LinkFlows(Record, frozen=True, kw_only=True):
    """The flows on a link."""

    name: str
    layer: str
    flows: int | None


class FlowLoads(Record, frozen=True, kw_only=True):
    """Loads in flows, as traced or with another strategy; nothing here counts bytes."""

    name: str
    fim_percent: Annotated[float | None, about("of the worst layer")]
    layers: list[LayerFlows]
    links: Annotated[list[LinkFlows], about("the links with most flows first")]


class TraceResult(Record, frozen=True, kw_only=True):
    """The paths of all flows, and how evenly they use the links."""

    version: str
    flows: Annotated[
        list[TracedFlow], about("all flows; from programs that ask for fewer, the largest")
    ]
    flows_traced: int
    complete_flows: int
    hops: Annotated[dict[str, int], about("links of all paths, by evidence")]
    open_ends: list[OpenEnd]
    contradicted_flows: int
    loads: Annotated[
        ReplayResult | None,
        about(
            "loads of the flows with complete paths, first as traced, then with other "
            "strategies; null: no path is complete, or bytes are not known (--hosts)"
        ),
    ]
    warnings: list[str]
    queue_pairs: Annotated[
        int | None, about("connected ones of the hosts; null: captures were traced")
    ] = None
    flow_loads: Annotated[
        list[FlowLoads],
        about(
            "--hosts: loads of the flows with complete paths in flows, first as "
            "traced, then with other strategies that count every flow alike"
        ),
    ] = []
    taps: Annotated[TapCheck | None, about("--verify taps; null: not requested")] = None
    counters: Annotated[CounterCheck | None, about("--verify counters; null: not requested")] = None
    asked: Annotated[AskReport | None, about("--ask; null: not requested")] = None
    advice: Annotated[Advice | None, about("--advise; null: not requested")] = None
    changed_switches: Annotated[
        list[str] | None, about("switches whose tables changed during the trace; null: not watched")
    ] = None
    changed_flows: Annotated[
        int | None, about("flows through these switches; null: not watched")
    ] = None
    unwatched_switches: Annotated[
        list[str], about("switches whose tables could not be read to compare them")
    ] = []
    schema_version: str = SCHEMA_VERSION
