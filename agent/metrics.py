"""The metrics: names, help and labels. No queue pair is a label, so series stay few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.samples import Exemplar

from ..kernels.kernel import Array, Ints
from ..version import VERSION
from .adapters import AdapterState
from .findings import AgentFinding, Blind, Place
from .flows import COUNTED, COUNTS, WIDTH_BOUNDS

_PLACE: Final = ["device", "direction"]


@dataclass(frozen=True, slots=True)
class Worst:
    """The flow with the most of something in the last interval with any."""

    dest_qp: int
    peer: str
    count: int
    time_s: float

    def exemplar(self) -> Exemplar:
        """Labels and value of the exemplar in OpenMetrics."""
        labels = {"dest_qp": f"0x{self.dest_qp:06x}", "peer": self.peer}
        return Exemplar(labels, self.count, self.time_s)


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a place whose packets are seen."""

    place: Place
    packets: int
    wire_bytes: int
    sums: Array
    """[COUNTED]"""
    dropped: int
    merged: int
    ultra_ethernet: int
    active_flows: int
    unsprayed_flows: int
    missing: int
    width_bins: Ints
    width_sum: float
    peers: list[tuple[str, Array]]
    """Address or `other`, and [COUNTED]."""
    worst: dict[str, Worst] = field(default_factory=dict)
    """By field of COUNTED."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is exported at one time."""

    time_s: float
    places: Sequence[Seen]
    sources: dict[str, str]
    """Interface -> packets, or none."""
    blind: Sequence[Blind]
    adapters: AdapterState
    has_adapters: bool
    findings: Sequence[AgentFinding]
    unlisted_packets: int
    recordings: int | None
    """Recordings of findings so far; None: nothing is recorded."""


def families(state: State) -> list[Metric]:
    """All metrics of a state. Series of what is not seen are absent."""
    every = (_about(state), _packets(state.places), _peers(state.places), _adapters(state))
    return [metric for metrics in every for metric in metrics if metric.samples]


def _about(state: State) -> list[Metric]:
    build = InfoMetricFamily("rocescope_build", "The version of rocescope")
    build.add_metric([], {"version": VERSION})
    source = InfoMetricFamily(
        "rocescope_source",
        "Source of the figures of a device: packets, queue_pairs, or none",
        labels=["device", "source"],
    )
    for device, name in state.sources.items():
        source.add_metric([device, name], {})
    blind = GaugeMetricFamily(
        "rocescope_blind",
        "1: packets of this device are not seen, and their series are absent",
        labels=["device", "reason"],
    )
    for one in state.blind:
        blind.add_metric([one.interface, one.reason], 1)
    findings = GaugeMetricFamily(
        "rocescope_findings",
        "1: the finding is present; /diagnosis has the details",
        labels=[*_PLACE, "kind", "severity"],
    )
    for finding in state.findings:
        labels = [finding.interface, finding.direction, finding.kind, finding.severity]
        findings.add_metric(labels, 1)
    found: list[Metric] = [build, source, blind, findings]
    if state.recordings is not None:
        found.append(
            CounterMetricFamily(
                "rocescope_recordings", "Findings that were recorded", value=state.recordings
            )
        )
    return found


def _packets(places: Sequence[Seen]) -> list[Metric]:
    def counter(name: str, text: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"rocescope_{name}", text, labels=_PLACE)

    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"rocescope_{name}", text, labels=_PLACE)

    dropped = counter(
        "probe_dropped_packets", "Packets in the totals without details: the table was full"
    )
    merged = counter(
        "merged_packets", "Frames that the kernel merged from several packets: GRO, GSO"
    )
    ultra = counter("ultra_ethernet_packets", "Packets of Ultra Ethernet, which are not counted")
    active = gauge("active_flows", "Flows with a packet within the last minute")
    unsprayed = gauge("unsprayed_flows", "Flows whose data took one path in the last interval")
    missing = gauge(
        "missing_packets",
        "PSNs of active flows skipped beyond their late packets: a lower limit of the missing"
        " packets; retransmissions hide losses",
    )
    widths = HistogramMetricFamily(
        "rocescope_spraying_width",
        "Effective number of paths of a flow's data, once per flow and interval",
        labels=_PLACE,
    )
    counts = {c.field: counter(c.metric, c.meaning) for c in COUNTS if c.metric}
    for seen in places:
        labels = [seen.place.interface, seen.place.direction]
        dropped.add_metric(labels, seen.dropped)
        merged.add_metric(labels, seen.merged)
        ultra.add_metric(labels, seen.ultra_ethernet)
        active.add_metric(labels, seen.active_flows)
        unsprayed.add_metric(labels, seen.unsprayed_flows)
        missing.add_metric(labels, seen.missing)
        bounds = [*(f"{bound:g}" for bound in WIDTH_BOUNDS), "+Inf"]
        buckets = list(zip(bounds, seen.width_bins.cumsum().tolist(), strict=True))
        widths.add_metric(labels, buckets=buckets, sum_value=seen.width_sum)
        totals = dict(zip(COUNTED, seen.sums.tolist(), strict=True))
        totals |= {"packets": seen.packets, "wire_bytes": seen.wire_bytes}
        for name, family in counts.items():
            worst = seen.worst.get(name)
            family.add_metric(
                labels,
                int(totals[name]),
                exemplar=None if worst is None else worst.exemplar(),
            )
    return [
        *(*counts.values(), dropped, merged, ultra),
        *(active, unsprayed, missing, widths),
    ]


def _peers(places: Sequence[Seen]) -> list[Metric]:
    found: list[Metric] = []
    for column, count in enumerate(COUNTS):
        if not count.of_peers:
            continue
        family = CounterMetricFamily(
            f"rocescope_peer_{count.metric}",
            f"{count.meaning}, by peer",
            labels=[*_PLACE, "peer"],
        )
        for seen in places:
            labels = [seen.place.interface, seen.place.direction]
            for peer, sums in seen.peers:
                family.add_metric([*labels, peer], int(sums[column]))
        found.append(family)
    return found


def _adapters(state: State) -> list[Metric]:
    if not state.has_adapters or state.adapters.reason is not None:
        return []
    pairs = GaugeMetricFamily(
        "rocescope_queue_pairs",
        "Queue pairs of this host, by the kernel's table",
        labels=["adapter", "type", "state"],
    )
    for labels, number in state.adapters.states().items():
        pairs.add_metric(labels, number)
    worst: dict[tuple[str, str], int] = {}
    for one in state.adapters.counters:
        for name, value in one.values.items():
            worst[one.device, name] = max(value, worst.get((one.device, name), 0))
    largest = GaugeMetricFamily(
        "rocescope_queue_pair_counter_max",
        "The largest value of an adapter's counter among its queue pairs; see /queue-pairs",
        labels=["adapter", "counter"],
    )
    for (adapter, name), number in worst.items():
        largest.add_metric([adapter, name], number)
    return [pairs, largest]
