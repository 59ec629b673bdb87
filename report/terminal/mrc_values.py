"""The report's tables of MRC entropy values: values with problems, and retired values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UnsetType
from rich.table import Table

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.flow import Flow
from ...analyzer.results.mrc import MrcEntropyValue, MrcRetirement
from ..words import human
from .page import folded, numbers, texts


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
