"""The report's sections on this host: processes of flows, counters of RDMA ports."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.flow import Flow
from ...analyzer.results.live import RdmaPort
from ..words import human
from ..words.human import Glyphs
from .page import numbers, texts
from .tables import FlowTable, add_flow_columns, flow_cells


def owners(analysis: Analysis) -> str:
    """The number of flows with a known process; empty if there is none."""
    pids = {flow.owner.pid for flow in analysis.flows if flow.owner is not None}
    owned = sum(flow.owner is not None for flow in analysis.flows)
    if not owned:
        return ""
    verb = "belongs" if owned == 1 else "belong"
    return (
        f"{human.count(owned)} of {human.counted(len(analysis.flows), 'flow')} {verb} to"
        f" {human.counted(len(pids), 'process', 'processes')} of this host."
    )


def _owner_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    add_flow_columns(table)
    texts(table, "command")
    numbers(table, "PID", "rank")
    texts(table, "end")
    for flow in flows:
        owner = flow.owner
        assert owner is not None
        rank = "-" if owner.rank is None else str(owner.rank)
        cells = flow_cells(flow, glyphs, wide)
        table.add_row(*cells, owner.command, str(owner.pid), rank, owner.end)


OWNERS = FlowTable(
    lambda flow: flow.owner is not None,
    lambda flow: flow.wire_bytes,
    _owner_table,
    "end: the process owns the sending (source) or receiving (destination) queue pair",
)


def rdma_ports(ports: Sequence[RdmaPort]) -> str:
    """The number of ports with counts, and unknown counters."""
    grown = sum(any(_counters(port).values()) for port in ports)
    text = (
        f"Counters grew on {grown} of {human.counted(len(ports), 'RDMA port')} during the capture."
    )
    for port in ports:
        if port.restarted:
            text += f" {port.device}/{port.port}: reset of {', '.join(port.restarted)}."
    return text


def port_table(table: Table, ports: Sequence[RdmaPort]) -> None:
    """One row per counter that grew."""
    texts(table, "port", "counter")
    numbers(table, "grew by")
    for port in ports:
        for name, grown in _counters(port).items():
            if grown:
                table.add_row(f"{port.device}/{port.port}", name, f"{grown:,}")


def _counters(port: RdmaPort) -> dict[str, int]:
    return port.counters | port.hw_counters
