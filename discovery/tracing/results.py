"""Results of `trace`. Field names are the names of the JSON output."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...replay.results.base import SCHEMA_VERSION, Chance
from ...replay.results.replay import ReplayResult


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class TracedFlow(Record, frozen=True, kw_only=True):
    """A one-way flow, or one entropy value of a flow that sprays."""

    flow: int
    src: str
    dst: str
    src_port: int
    dest_qp: int
    packets: Annotated[int | None, Meta(description="null: of queue pairs, --hosts")]
    wire_bytes: Annotated[int | None, Meta(description="null: of queue pairs, --hosts")]
    complete: Annotated[bool, Meta(description="whether the path is known to its destination")]
    links: Annotated[list[str], Meta(description="the known links from the source host on")]
    evidence: Annotated[
        list[str],
        Meta(
            description="of every link: captured, single next hop, asked, computed, seed read, or "
            "computed, seed recovered"
        ),
    ]
    ends_at: Annotated[str | None, Meta(description="switch where the known path ends early")]
    reason: Annotated[str | None, Meta(description="why it ends early")]
    contradicted: Annotated[
        bool, Meta(description="a captured link differs from the computed one; the path has it")
    ]
    switch_changed: Annotated[
        bool | None,
        Meta(
            description="the tables of a switch on the known path changed during the trace; null: "
            "not watched, or not all of its switches"
        ),
    ]
    src_qp: Annotated[
        int | None, Meta(description="the queue pair that sends; null: of captures")
    ] = None
    src_process: Annotated[
        str | None, Meta(description="that owns it; null: of captures, or hidden")
    ] = None
    src_pid: int | None = None
    dst_process: Annotated[str | None, Meta(description="that owns the receiving queue pair")] = (
        None
    )
    dst_pid: int | None = None
    src_rank: Annotated[
        int | None, Meta(description="in the communicator; null: no log of the job names it")
    ] = None
    dst_rank: int | None = None
    comm: Annotated[str | None, Meta(description="communicator, from logs of the job")] = None
    inferred: Annotated[
        list[str],
        Meta(description="of addresses, peer and src_port, those that no packet or host told"),
    ] = []


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
        Meta(
            description="links with the packets that leave or enter the same device; empty: the "
            "tap on the predicted link did not see them"
        ),
    ]


class TapCheck(Record, frozen=True, kw_only=True):
    """Predicted hops against captures. The prediction uses tables and hashes only."""

    hops_checked: Annotated[int, Meta(description="predicted hops with a tap on their link")]
    hops_agreeing: Annotated[int, Meta(description="of these, captured on their link")]
    hops_not_checked: int
    links_not_checked: Annotated[list[str], Meta(description="predicted links without a tap")]
    taps_not_used: Annotated[list[str], Meta(description="taps whose names tell no link")]
    disagreeing_flows: int
    disagreements: Annotated[list[TapDisagreement], Meta(description="at most 1000")]


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
        Meta(
            description="links with predicted flows, or on open paths, that were not compared, "
            "and links on which other traffic could hide a flow"
        ),
    ]
    background_bytes: Annotated[
        int,
        Meta(
            description="median growth beyond the prediction, at least 0: routing protocols, LLDP"
        ),
    ]
    flows_too_small: Annotated[
        int, Meta(description="flows that could take other links without a visible difference")
    ]
    disagreements: list[PortDisagreement]


class AskedSwitch(Record, frozen=True, kw_only=True):
    """What a switch was asked about its next hops."""

    switch: str
    questions: int
    answers: int
    computed_too: Annotated[int, Meta(description="answers for hops that were also computed")]
    agreeing: Annotated[int, Meta(description="of these, with the computed link")]
    problem: Annotated[str | None, Meta(description="why answers are missing")]


class AskReport(Record, frozen=True, kw_only=True):
    """Next hops that switches named themselves."""

    mode: Annotated[str, Meta(description="sample or all")]
    switches: list[AskedSwitch]
    not_asked: Annotated[dict[str, int], Meta(description="hops that were not asked, by reason")]


class AdviceOption(Record, frozen=True, kw_only=True):
    """One kind of change that relieves the fullest link."""

    kind: Annotated[str, Meta(description="source ports, seed, or static routes")]
    changes: Annotated[list[str], Meta(description="to be judged by a person; nothing is applied")]
    fullest_link: Annotated[str, Meta(description="after the changes")]
    busy_ns: Annotated[float, Meta(description="its bytes divided by its rate")]


class Advice(Record, frozen=True, kw_only=True):
    """Changes that relieve the fullest link between switches, the best kind first."""

    fullest_link: Annotated[
        str | None, Meta(description="null: no flow with a known path runs between switches")
    ]
    busy_ns: Annotated[float | None, Meta(description="its bytes divided by its rate")]
    flows_left_out: Annotated[int, Meta(description="their paths are not known")]
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
    flows: Annotated[int | None, Meta(description="placements")]
    fim_flows_percent: float | None
    fim_flows_best_percent: Annotated[
        float | None, Meta(description="lower limit for any placement of whole flows")
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
    fim_percent: Annotated[float | None, Meta(description="of the worst layer")]
    layers: list[LayerFlows]
    links: Annotated[list[LinkFlows], Meta(description="the links with most flows first")]


class TraceResult(Record, frozen=True, kw_only=True):
    """The paths of all flows, and how evenly they use the links."""

    version: str
    flows: Annotated[
        list[TracedFlow],
        Meta(description="all flows; from programs that ask for fewer, the largest"),
    ]
    flows_traced: int
    complete_flows: int
    hops: Annotated[dict[str, int], Meta(description="links of all paths, by evidence")]
    open_ends: list[OpenEnd]
    contradicted_flows: int
    loads: Annotated[
        ReplayResult | None,
        Meta(
            description="loads of the flows with complete paths, first as traced, then with other "
            "strategies; null: no path is complete, or bytes are not known (--hosts)"
        ),
    ]
    warnings: list[str]
    queue_pairs: Annotated[
        int | None, Meta(description="connected ones of the hosts; null: captures were traced")
    ] = None
    flow_loads: Annotated[
        list[FlowLoads],
        Meta(
            description="--hosts: loads of the flows with complete paths in flows, first as "
            "traced, then with other strategies that count every flow alike"
        ),
    ] = []
    taps: Annotated[TapCheck | None, Meta(description="--verify taps; null: not requested")] = None
    counters: Annotated[
        CounterCheck | None, Meta(description="--verify counters; null: not requested")
    ] = None
    asked: Annotated[AskReport | None, Meta(description="--ask; null: not requested")] = None
    advice: Annotated[Advice | None, Meta(description="--advise; null: not requested")] = None
    changed_switches: Annotated[
        list[str] | None,
        Meta(description="switches whose tables changed during the trace; null: not watched"),
    ] = None
    changed_flows: Annotated[
        int | None, Meta(description="flows through these switches; null: not watched")
    ] = None
    unwatched_switches: Annotated[
        list[str], Meta(description="switches whose tables could not be read to compare them")
    ] = []
    schema_version: str = SCHEMA_VERSION
