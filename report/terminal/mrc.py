"""The report's section on MRC: planes, entropy values and the answers of receivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UnsetType
from rich.table import Table

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.flow import Flow
from ...analyzer.results.mrc import (
    Mrc,
    MrcAnswers,
    MrcEntropyValue,
    MrcFlow,
    MrcPlanes,
    MrcRetirement,
)
from .. import human
from ..human import Glyphs
from .page import folded, numbers, texts
from .tables import FlowTable, add_flow_columns, flow_cells

# The report's tables of MRC entropy values: values with problems, and retired values.


def _values(flows: Sequence[Flow]) -> Iterator[tuple[Flow, MrcEntropyValue]]:
    for flow in flows:
        if not isinstance(flow.mrc, UnsetType) and flow.mrc is not None:
            yield from ((flow, value) for value in flow.mrc.values)


def _trouble(value: MrcEntropyValue) -> int:
    counts = (value.lost_packets, value.skip_once, value.always_skip, value.nacks)
    return sum(n or 0 for n in counts)


def troubled(analysis: Analysis) -> list[tuple[Flow, MrcEntropyValue]]:
    """Entropy values with losses, NACKs or skips, the worst first."""
    rows = [(flow, value) for flow, value in _values(analysis.flows) if _trouble(value)]
    return sorted(rows, key=lambda row: (-_trouble(row[1]), -row[1].wire_bytes))


def value_table(table: Table, values: Sequence[tuple[Flow, MrcEntropyValue]]) -> None:
    """Packets and answers by entropy value."""
    texts(table, "#")
    folded(table, "EV", "plane")
    numbers(table, "packets", "bytes", "lost", "skip", "always", "NACK", "RTT")
    for flow, value in values:
        table.add_row(
            str(flow.id),
            value.ev,
            human.UNKNOWN if value.plane is None else value.plane,
            human.count(value.packets),
            human.size(value.wire_bytes),
            human.count(value.lost_packets),
            human.count(value.skip_once),
            human.count(value.always_skip),
            human.count(value.nacks),
            human.duration(value.round_trip_mean_ns),
        )


def retired(analysis: Analysis) -> list[tuple[Flow, MrcRetirement]]:
    """Retired entropy values, in order of time."""
    rows: list[tuple[Flow, Any]] = [
        (flow, value)
        for flow in analysis.flows
        if not isinstance(flow.mrc, UnsetType) and flow.mrc is not None
        for value in flow.mrc.retirements
    ]
    return sorted(rows, key=lambda pair: pair[1].retired_time_ns)


def retired_table(
    table: Table, values: Sequence[tuple[Flow, MrcRetirement]], begin_ns: int
) -> None:
    """Last use, return and cause of each retired value; times since `begin_ns`."""
    numbers(table, "last used, s", "returned after", "without")
    texts(table, "#")
    folded(table, "EV", "plane", "cause")
    for flow, value in values:
        back = "-"
        if value.returned_time_ns is not None:
            back = human.duration(value.returned_time_ns - value.retired_time_ns)
        table.add_row(
            f"{(value.retired_time_ns - begin_ns) / 1e9:.6f}",
            back,
            human.count(value.packets_without),
            str(flow.id),
            value.ev,
            human.UNKNOWN if value.plane is None else value.plane,
            value.cause.replace("_", " ") + ("" if value.certain else "?"),
        )


_ORDERS = {
    "flow_label_high": "flow label in the high half, UDP source port in the low half",
    "udp_port_high": "UDP source port in the high half, flow label in the low half",
}
_EQUAL = 1.05
"""Planes count as equal when the largest carries at most this many times the mean."""


def _of(flow: Flow) -> MrcFlow | None:
    return None if isinstance(flow.mrc, UnsetType) else flow.mrc


def _record(flow: Flow) -> MrcFlow:
    record = _of(flow)
    assert record is not None
    return record


def mrc(analysis: Analysis, summary: Mrc) -> str:
    """The verdict on MRC."""
    flows = [record for record in map(_of, analysis.flows) if record is not None]
    resent = sum(record.retransmissions for record in flows)
    packets = sum(record.packets for record in flows)
    text = (
        f"{human.counted(len(flows), 'MRC flow')}: {human.count(resent)} of"
        f" {human.count(packets)} packets are retransmissions (RTX bit)"
    )
    trimmed = sum(record.trimmed_packets for record in flows)
    text += f", {human.count(trimmed)} arrived trimmed." if trimmed else "."
    return " ".join(
        [text, _answers(flows), _retired(flows), _planes(summary), _order(summary)]
    ).replace("  ", " ")


def _answers(flows: Sequence[MrcFlow]) -> str:
    answers = [record.answers for record in flows if record.answers is not None]
    if not answers:
        return "No SACK or NACK was seen." if flows else ""
    said = []
    for what, n in (
        ("SKIP_ONCE", sum(a.skip_once for a in answers)),
        ("ALWAYS_SKIP", sum(a.always_skip for a in answers)),
    ):
        said += [f"{human.count(n)} {what}"] if n else []
    reasons: Counter[str] = Counter()
    for a in answers:
        reasons.update(a.nacks)
    said += [f"{human.count(n)} NACK {reason}" for reason, n in reasons.most_common()]
    sacks = human.counted(sum(a.sacks for a in answers), "SACK")
    text = f"Receivers sent {sacks}" + (f", with {', '.join(said)}." if said else ".")
    return f"{text} {_windows(answers)}"


def _windows(answers: Sequence[MrcAnswers]) -> str:
    """Out-of-order depth, and the share of the receivers' windows in flight."""
    depths = [a.out_of_order_depth.max for a in answers if a.out_of_order_depth]
    text = ""
    if depths:
        text = f"Packets were up to {human.count(int(max(depths)))} PSNs out of order"
    uses = [(a.max_window_use, a) for a in answers if a.max_window_use is not None]
    if not uses:
        return f"{text}." if text else ""
    most, busiest = max(uses, key=lambda use: use[0])
    return (
        f"{text}; at most {human.percent(most)} of the window of"
        f" {human.count(busiest.psn_range_packets)} PSNs was in flight."
    )


def _retired(flows: Sequence[MrcFlow]) -> str:
    listed = [retired for record in flows for retired in record.retirements]
    known = [retired for retired in listed if retired.certain]
    if not listed:
        return ""
    more = len(listed) - len(known)
    if not known:
        values = human.counted(more, "entropy value")
        return f"{values} were possibly retired just before the end."
    back = sum(retired.returned_time_ns is not None for retired in known)
    values = human.counted(len(known), "entropy value")
    causes = Counter(retired.cause.replace("_", " ") for retired in known)
    listed_causes = ", ".join(f"{n} {cause}" for cause, n in causes.most_common())
    text = f"{values} retired (inferred: {listed_causes}), {human.count(back)} returned."
    return (
        f"{text} {human.count(more)} more were possibly retired just before the end."
        if more
        else text
    )


def _planes(summary: Mrc) -> str:
    if summary.planes is None:
        return f"Planes are not known: {summary.planes_unknown_because}."
    planes = summary.planes
    guess = ", inferred, see --plane-by" if planes.inferred else ""
    how = f"(by {planes.plane_by}{guess})"
    many = human.counted(len(planes.planes), "plane")
    if planes.max_over_mean <= _EQUAL or len(planes.planes) == 1:
        return f"{many} {how} carry equal shares, within 5 %."
    worst = max(planes.planes, key=lambda p: p.wire_bytes)
    return f"{many} {how} differ: {worst.plane} carries {planes.max_over_mean:.2f} times the mean."


def _order(summary: Mrc) -> str:
    order = summary.entropy_order
    if order.order is None:
        return f"The layout of entropy values in SACKs is unknown: {order.reason}."
    agree = order.flow_label_high if order.order == "flow_label_high" else order.udp_port_high
    header = " (flow label of the outer header)" if summary.flow_label == "outer" else ""
    seen = order.flow_label_high + order.udp_port_high + order.both + order.neither
    return (
        f"Entropy values in SACKs hold the {_ORDERS[order.order]}{header}:"
        f" {human.count(agree)} of {human.count(seen)} agree."
    )


def outages(summary: Mrc) -> list[str]:
    """One line per port that was unreachable."""
    lines = []
    for outage in summary.outages:
        until = "to the end of the capture"
        if outage.up_time_ns is not None:
            until = f"for {human.duration(outage.up_time_ns - outage.down_time_ns)}"
        lines.append(f"{outage.host}: port {outage.port} declared unreachable {until}")
    return lines


def _flow_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    add_flow_columns(table)
    numbers(table, "EVs", "retired", "RTX", "NACK", "skip", "RTT p50")
    if wide:
        numbers(table, "RTT p99", "depth p99", "window")
    for flow in flows:
        record = _record(flow)
        answers = record.answers
        cells = [
            *flow_cells(flow, glyphs, wide),
            human.count(record.entropy_values),
            human.count(sum(retired.certain for retired in record.retirements)),
            human.count(record.retransmissions),
            human.count(None if answers is None else sum(answers.nacks.values())),
            human.count(None if answers is None else answers.skip_once + answers.always_skip),
        ]
        trip = answers.round_trip_ns if answers else None
        cells.append(human.duration(trip.p50) if trip else "-")
        if wide:
            depth = answers.out_of_order_depth if answers else None
            use = answers.max_window_use if answers else None
            cells += [
                human.duration(trip.p99) if trip else "-",
                f"{depth.p99:.0f}" if depth else "-",
                human.percent(use) if use is not None else "-",
            ]
        table.add_row(*cells)


MRC = FlowTable(
    lambda flow: _of(flow) is not None,
    lambda flow: _record(flow).retransmissions * 1e15 + flow.wire_bytes,
    _flow_table,
    "EVs: entropy values used; retired: of these; skip: SKIP_ONCE and ALWAYS_SKIP",
)


def plane_table(table: Table, planes: MrcPlanes, glyphs: Glyphs, width: int) -> None:
    """One row per plane with its share of the bytes."""
    folded(table, "plane")
    numbers(table, "EVs", "packets", "bytes", "share")
    texts(table, "")
    largest = max(plane.share for plane in planes.planes)
    for plane in planes.planes:
        table.add_row(
            plane.plane,
            human.count(plane.entropy_values),
            human.count(plane.packets),
            human.size(plane.wire_bytes),
            human.percent(plane.share),
            glyphs.bar(plane.share / largest, max(10, width - 60)),
        )
