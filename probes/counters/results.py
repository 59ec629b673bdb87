"""From counters to the records of an analysis of the same traffic."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.results.analysis import Analysis
from ...analyzer.results.captures import CaptureSummary, TapSummary
from ...analyzer.results.diagnosis import Diagnosis
from ...analyzer.results.flow import Flow
from ...analyzer.results.series import Series
from ...analyzer.wire.frames import LINKTYPE_ETHERNET
from ...version import VERSION
from .counters import CounterSource, Reading
from .flows import flows_of


def analysis_of(source: CounterSource, reading: Reading) -> Analysis:
    """All counters, in the form of an analysis of the same traffic."""
    names = [f"{interface.label} {direction}" for interface, direction in source.taps]
    flows, imbalance = flows_of(reading, names)
    return Analysis(
        version=VERSION,
        complete=True,
        captures=[_capture(source, reading, names, flows)],
        diagnosis=Diagnosis(
            "Not diagnosed: counters hold no packets.",
            findings=[],
            healthy=[],
            limits=["counters show neither loss nor order: capture packets for a diagnosis"],
        ),
        flows=flows,
        connections=[],
        imbalance=imbalance,
        hops=[],
        capture_losses=[],
        clocks=[],
        events=[],
        events_omitted=0,
        series=Series(
            DEFAULT_WINDOW_NS, _first(flows) or 0, [], [], [], [], [], [], [], [], [], {}
        ),
        warnings=[*_warnings(reading), *source.others.lines()],
    )


def _capture(
    source: CounterSource, reading: Reading, names: Sequence[str], flows: Sequence[Flow]
) -> CaptureSummary:
    first, last = _first(flows), max((flow.last_time_ns for flow in flows), default=None)
    matched = reading.total("counted") + reading.total("filtered")
    short = reading.total("too_short")
    others = reading.total("seen") - matched - short
    return CaptureSummary(
        name=", ".join(interface.label for interface in source.interfaces),
        format="counters",
        compression=None,
        frames=reading.total("seen"),
        roce_packets=matched,
        first_time_ns=first,
        last_time_ns=last,
        duration_ns=None if first is None or last is None else last - first,
        snapped_frames=0,
        out_of_order_frames=0,
        undecodable_frames={"too short": short} if short else {},
        later_fragments=0,
        icrc=None,
        contents={"not RoCE": others} if others else {},
        taps=[
            TapSummary(
                name=name,
                link_type=LINKTYPE_ETHERNET,
                frames=int(reading.tally[tap]["seen"].sum()),
                roce_packets=int(reading.tally[tap]["counted"].sum()),
                wire_bytes=int(reading.tally[tap]["counted_bytes"].sum()),
                dropped_frames=int(reading.lost_packets[tap]),
                speed_bits_per_second=source.taps[tap][0].speed_bits_per_second,
                pauses=[],
            )
            for tap, name in enumerate(names)
        ],
        warnings=[],
    )


def _first(flows: Sequence[Flow]) -> int | None:
    return min((flow.first_time_ns for flow in flows), default=None)


def _warnings(reading: Reading) -> list[str]:
    """Limits of trust in the results, the most important first."""
    lines = []
    lost, lost_bytes = int(reading.lost_packets.sum()), int(reading.lost_bytes.sum())
    if lost:
        lines.append(
            f"{lost} packets ({lost_bytes} bytes) of {reading.total('counted')} are missing from"
            f" the flows: {reading.total('evicted')} entries were evicted before they were"
            " read: give a larger --max-flows or a shorter --interval"
        )
    forgotten = reading.total("orders_lost")
    if forgotten:
        lines.append(
            f"the PSN order of a flow was evicted {forgotten} times: more packets may"
            " have been late or missing than counted: give a larger --max-flows"
        )
    merged = reading.total("merged")
    if merged:
        lines.append(
            f"{merged} packets are merges of several packets by the kernel (GRO or GSO): --hook xdp"
            " sees each"
        )
    ultra_ethernet = reading.total("ultra_ethernet")
    if ultra_ethernet:
        lines.append(
            f"{ultra_ethernet} packets of Ultra Ethernet were seen; they belong to no flow"
        )
    if reading.total("filtered"):
        lines.append("a filter is set: excluded packets count as neither seen nor lost")
    return lines
