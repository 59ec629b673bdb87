"""The report's sections on this host: processes of flows, counters of RDMA ports."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.flow import Flow
from ...analyzer.results.live import RdmaPort
from ...analyzer.words import printable
from ..words import human
from ..words.human import Glyphs
from .page import numbers, texts
from .tables import FlowTable, add_flow_columns, flow_cells


def owners(analysis: Analysis) -> str:
    """The number of flows with a known process; empty if there is none."""
    owners = [flow.owner for flow in analysis.flows if flow.owner is not None]
    if not owners:
        return ""
    processes = {(owner.host, owner.pid) for owner in owners if owner.pid is not None}
    verb = "belongs" if len(owners) == 1 else "belong"
    text = f"{human.count(len(owners))} of {human.counted(len(analysis.flows), 'flow')} {verb} to"
    text += (
        f" {human.counted(len(processes), 'process', 'processes')}" if processes else " perftest"
    )
    if all(owner.host is None and owner.pid is not None for owner in owners):
        return f"{text} of this host."
    between = sum(None not in owner.ranks for owner in owners)
    return f"{text}; logs name both ranks of {human.counted(between, 'flow')}."


def _owner_table(table: Table, flows: Sequence[Flow], glyphs: Glyphs, wide: bool) -> None:
    add_flow_columns(table)
    table.columns.pop()  # ranks have their own columns here
    owned = [(flow, flow.owner) for flow in flows if flow.owner is not None]
    logged = any(owner.host or owner.device or owner.comm for _, owner in owned)
    texts(table, "command")
    numbers(table, "PID", "rank")
    if logged:
        numbers(table, "peer rank")
        texts(table, "host", "device", "communicator")
        numbers(table, "channel?")
    texts(table, "end")
    for flow, owner in owned:
        cells = [*flow_cells(flow, glyphs, wide)[:-1], _known(owner.command)]
        cells += [_known(owner.pid), _known(owner.rank)]
        if logged:
            cells += [_known(owner.peer_rank), _known(owner.host), _known(owner.device)]
            cells += [_known(owner.comm), _known(owner.inferred_channel)]
        table.add_row(*cells, owner.end)


def _known(value: str | int | None) -> str:
    return "-" if value is None else printable(str(value))


OWNERS = FlowTable(
    lambda flow: flow.owner is not None,
    lambda flow: flow.wire_bytes,
    _owner_table,
    "end: the process owns the sending (source) or receiving (destination) queue pair;"
    " channel?: inferred from the order of log lines",
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
