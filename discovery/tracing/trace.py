"""The path of every flow, with the loads of links and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from ...analyzer.results.flow import Owner
from ...kernels.kernel import Array, Bools, Ints
from ...replay.compare.flows import KnownChances, result_of
from ...replay.compare.summaries import fabric_summary, mapped, traffic_summary
from ...replay.fabrics.fabric import Fabric
from ...replay.results import DeviceLoad, LayerLoad, ReplayResult
from ...replay.strategies.base import FlowStrategy
from ...replay.traffic.traffic import Traffic
from ...version import VERSION
from ..asking import Request, Run
from ..port_counters import Reading
from ..results import HostQueuePair
from ..traffic import HostTraffic
from .advise import advise
from .asking import Asking
from .paths import EVIDENCE, KNOWN, REASONS, TracedPaths, complete, trace_paths
from .results import DeviceFlows, FlowLoads, LayerFlows, LinkFlows, OpenEnd, TracedFlow, TraceResult
from .verify import verify_counters, verify_taps

# Loads in flows where bytes are not known: what a result of strategies tells without bytes.


def flow_loads(result: ReplayResult) -> list[FlowLoads]:
    """The loads of every strategy in flows."""
    return [
        FlowLoads(
            name=strategy.name,
            fim_percent=strategy.fim_percent,
            layers=[_layer(layer) for layer in strategy.layers if layer.choice],
            links=[
                LinkFlows(name=link.name, layer=link.layer, flows=link.flows)
                for link in sorted(strategy.links, key=lambda link: -(link.flows or 0))
            ],
        )
        for strategy in result.strategies
    ]


def _layer(layer: LayerLoad) -> LayerFlows:
    return LayerFlows(
        layer=layer.layer,
        links=layer.links,
        idle_links=layer.idle_links,
        flows=layer.flows,
        fim_flows_percent=layer.fim_flows_percent,
        fim_flows_best_percent=layer.fim_flows_best_percent,
        fim_chance_percent=layer.fim_chance_percent,
        devices=[_device(device) for device in layer.devices],
    )


def _device(device: DeviceLoad) -> DeviceFlows:
    return DeviceFlows(
        switch=device.switch,
        links=device.links,
        flows=device.flows,
        fim_flows_percent=device.fim_flows_percent,
        fim_flows_best_percent=device.fim_flows_best_percent,
    )


# Whether the tables of switches changed while paths were traced: a trace is not one moment.

_BUCKETS = "ip -j nexthop bucket"
_COMMANDS = ("ip -j route", "ip -6 -j route", "ip -j nexthop", _BUCKETS)
_COUNTING = ("expires", "used")
"""Fields that change by themselves."""
_COUNTING_INSIDE = {"bucket": "idle_time", "resilient_args": "unbalanced_time"}
"""Fields that change by themselves, inside others."""
Tables: TypeAlias = Mapping[str, tuple[Any, ...] | None]
"""The tables of devices as they print them; None for a device that did not answer."""


def read_tables(run: Run, devices: Sequence[str]) -> Tables:
    """The routes, next-hop groups and buckets of resilient groups of devices now."""
    asked = [Request(device, command) for device in devices for command in _COMMANDS]
    said = run(asked)
    by_device: dict[str, tuple[Any, ...] | None] = {}
    for i, device in enumerate(devices):
        answers = said[i * len(_COMMANDS) : (i + 1) * len(_COMMANDS)]
        tables = [None if answer.problem else _table(answer.output) for answer in answers]
        if tables[-1] is None and not _resilient(tables[-2]):
            tables[-1] = []  # older kernels and iproute2 have no buckets
        by_device[device] = None if None in tables else tuple(tables)
    return by_device


def _resilient(groups: list[dict[str, Any]] | None) -> bool:
    """Whether a next-hop group has buckets, which decide the path; also if that is not known."""
    return groups is None or any(group.get("type") == "resilient" for group in groups)


def _table(output: bytes) -> list[dict[str, Any]] | None:
    """The entries without counters; None for anything else."""
    try:
        entries = msgspec.json.decode(output or b"[]", type=list[dict[str, Any]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    for entry in entries:
        for field, counting in _COUNTING_INSIDE.items():
            if isinstance(inside := entry.get(field), dict):
                inside.pop(counting, None)
    return [{k: v for k, v in entry.items() if k not in _COUNTING} for entry in entries]


def changed(before: Tables, after: Tables) -> tuple[list[str], list[str]]:
    """(devices whose tables differ, devices that did not answer both times)."""
    unknown = [name for name in before if before[name] is None or after.get(name) is None]
    differ = [name for name in before if name not in unknown and before[name] != after[name]]
    return differ, unknown


def through(paths: TracedPaths, fabric: Fabric, switches: Sequence[str]) -> Bools:
    """bool[units]: whether the known part of a path, or its open end, is at one of the switches."""
    at = np.zeros(len(fabric.nodes.names) + 1, np.bool_)  # the last item serves -1
    at[[fabric.nodes.names.index(name) for name in switches]] = True
    links = paths.placement.links
    source = np.where(links >= 0, fabric.links.source[links], -1)
    touched: Bools = at[source].any(axis=1) | at[paths.switch]
    return touched


TRACED = "traced"


class Verify(NamedTuple):
    """What the prediction is compared with."""

    taps: bool = False
    grown: Reading | None = None
    """Growth of port counters while the traffic was captured."""


def trace(
    traffic: Traffic,
    fabric: Fabric,
    strategies: Sequence[FlowStrategy],
    sources: Sequence[str],
    *,
    verify: Verify | None = None,
    asking: Asking | None = None,
    advice: bool = False,
    watch: Run | None = None,
    most_flows: int | None = None,
    hosts: HostTraffic | None = None,
) -> TraceResult:
    """Trace the traffic, and place the flows with complete paths with each strategy.

    watch: compares the tables of all switches before and after, and marks flows.
    most_flows: how many of the largest flows the result lists; None: all, in order.
    hosts: the queue pairs whose traffic this is; its bytes and packets are not known.
    UsageError if no flow is on the fabric.
    """
    traffic, warnings = mapped(traffic, fabric)
    switches = fabric.nodes.names[: fabric.switches]
    before = None if watch is None else read_tables(watch, switches)
    paths = trace_paths(traffic, fabric, asking)
    differ: list[str] = []
    unknown: list[str] = []
    if watch is not None and before is not None:
        differ, unknown = changed(before, read_tables(watch, switches))
    moved = through(paths, fabric, differ)
    changes: Array = moved.astype(np.object_)
    changes[~moved if watch is None else through(paths, fabric, unknown) & ~moved] = None
    rows = np.arange(len(traffic))
    if most_flows is not None:
        rows = np.argsort(-traffic.wire_bytes, kind="stable")[:most_flows]
    verify = verify or Verify()
    grown = verify.grown
    loads = _loads(traffic, fabric, paths, strategies, sources)
    pairs = None if hosts is None else hosts.ends
    return TraceResult(
        version=VERSION,
        flows=traced_flows(traffic, fabric, paths, rows, changes, pairs),
        flows_traced=len(traffic),
        complete_flows=int(np.count_nonzero(~paths.placement.dropped)),
        hops={
            name: int(np.count_nonzero(paths.evidence == number))
            for number, name in enumerate(EVIDENCE)
            if name
        },
        open_ends=_open_ends(fabric, paths),
        contradicted_flows=int(np.count_nonzero(paths.contradicted)),
        loads=loads if hosts is None else None,
        queue_pairs=None if hosts is None else hosts.queue_pairs,
        flow_loads=[] if hosts is None or loads is None else flow_loads(loads),
        warnings=warnings,
        taps=verify_taps(traffic, fabric) if verify.taps else None,
        counters=None if grown is None else verify_counters(traffic, fabric, paths, grown),
        advice=advise(traffic, fabric) if advice else None,
        changed_switches=None if watch is None else differ,
        changed_flows=None if watch is None else int(np.count_nonzero(moved)),
        unwatched_switches=unknown,
        asked=asking.report() if asking is not None else None,
    )


def _loads(
    traffic: Traffic,
    fabric: Fabric,
    paths: TracedPaths,
    strategies: Sequence[FlowStrategy],
    sources: Sequence[str],
) -> ReplayResult | None:
    outcome = complete(traffic, paths)
    if outcome is None:
        return None
    placed, known = outcome.traffic, KnownChances()
    results = [result_of(TRACED, outcome, fabric, known=known)]
    results += [result_of(s.name, s.place(placed, fabric), fabric, known=known) for s in strategies]
    return ReplayResult(
        version=VERSION,
        traffic=traffic_summary(placed, sources),
        fabric=fabric_summary(fabric),
        strategies=results,
        warnings=[],
    )


def traced_flows(
    traffic: Traffic,
    fabric: Fabric,
    paths: TracedPaths,
    rows: Ints,
    switch_changed: Array | None = None,
    pairs: Sequence[tuple[HostQueuePair, HostQueuePair]] | None = None,
) -> list[TracedFlow]:
    """The records of units. switch_changed: True, False or None of every unit; pairs: of
    flows without packets, the queue pairs that send and receive them."""
    if switch_changed is None:
        switch_changed = np.full(len(traffic), None, np.object_)
    keys = traffic.keys.take(rows)
    links = paths.placement.links[rows]
    names = {link: fabric.link_name(link) for link in np.unique(links[links >= 0]).tolist()}
    ends = [None if at < 0 else fabric.nodes.names[at] for at in paths.switch[rows].tolist()]
    columns = zip(
        traffic.flow[rows].tolist(),
        _addresses(keys.src),
        _addresses(keys.dst),
        keys.sport.tolist(),
        keys.dest_qp.tolist(),
        traffic.packets[rows].tolist(),
        traffic.wire_bytes[rows].tolist(),
        (~paths.placement.dropped[rows]).tolist(),
        ([names[link] for link in row if link >= 0] for row in links.tolist()),
        ([EVIDENCE[mark] for mark in row if mark] for row in paths.evidence[rows].tolist()),
        ends,
        (REASONS[why] if why != KNOWN else None for why in paths.reason[rows].tolist()),
        paths.contradicted[rows].tolist(),
        switch_changed[rows].tolist(),
        strict=True,
    )
    fields = TracedFlow.__struct_fields__
    flows = [TracedFlow(**dict(zip(fields, row, strict=False))) for row in columns]
    if traffic.owners:
        flows = [_with_ranks(flow, traffic.owners.get(flow.flow)) for flow in flows]
    return flows if pairs is None else [_of_queue_pair(flow, *pairs[flow.flow]) for flow in flows]


def _with_ranks(flow: TracedFlow, owner: Owner | None) -> TracedFlow:
    if owner is None:
        return flow
    sender, receiver = owner.ranks
    return msgspec.structs.replace(flow, src_rank=sender, dst_rank=receiver, comm=owner.comm)


def _of_queue_pair(flow: TracedFlow, src: HostQueuePair, dst: HostQueuePair) -> TracedFlow:
    return msgspec.structs.replace(
        flow,
        packets=None,
        wire_bytes=None,
        src_qp=src.local_qp,
        src_process=src.command,
        src_pid=src.pid,
        dst_process=dst.command,
        dst_pid=dst.pid,
        inferred=["addresses", "peer", "src_port"],
    )


def _addresses(packed: Array) -> list[str]:
    """Texts of uint8[n, 16]; IPv4 as ::ffff:a.b.c.d."""
    values, number = np.unique(packed, axis=0, return_inverse=True)
    texts = []
    for row in values:
        address = IPv6Address(row.tobytes())
        texts.append(str(address.ipv4_mapped or address))
    return [texts[i] for i in number.reshape(-1).tolist()]


def _open_ends(fabric: Fabric, paths: TracedPaths) -> list[OpenEnd]:
    """Where and why paths end early, the most frequent first."""
    rows = np.flatnonzero(paths.reason != KNOWN)
    kinds, counts = np.unique(
        np.stack([paths.switch[rows], paths.reason[rows]], 1), axis=0, return_counts=True
    )
    return [
        OpenEnd(
            switch=None if switch < 0 else fabric.nodes.names[switch],
            reason=REASONS[why],
            flows=count,
        )
        for (switch, why), count in sorted(
            zip(kinds.tolist(), counts.tolist(), strict=True), key=lambda entry: -entry[1]
        )
    ]
