"""Path MTUs that do not fit: two directions that differ, and fragments."""

from __future__ import annotations

from collections.abc import Iterator

from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, hosts


def mtu_mismatches(case: Case, known: Known) -> Iterator[Finding]:
    """Connections with two path MTUs, and captures with IP fragments of RoCE packets."""
    odd = []
    for connection in case.connections:
        sizes = {case.flows[f].path_mtu for f in connection.flows} - {None}
        if len(sizes) > 1:
            odd.append(connection)
    if odd:
        flows = [case.flows[f] for connection in odd for f in connection.flows]
        values = sorted({flow.path_mtu for flow in flows if flow.path_mtu})
        yield finding(
            case,
            "mtu-mismatch",
            Place(direction=f"between {odd[0].a} and {odd[0].b}" if len(odd) == 1 else None),
            {flow.id: flow.packets for flow in flows},
            sum(flow.packets for flow in flows),
            (min(flow.first_time_ns for flow in flows), max(flow.last_time_ns for flow in flows)),
            f"{counted(len(odd), 'connection')} ({hosts(flows)}) with path MTUs"
            f" {' and '.join(map(str, values))} in its two directions",
            "set one MTU on both hosts and all links",
            confidence="likely",
            severity="warning",
            costs=False,
        )
    for capture in case.captures:
        if capture.later_fragments:
            n = capture.later_fragments
            yield finding(
                case,
                "mtu-mismatch",
                Place(capture=capture.name),
                {},
                capture.frames,
                (capture.first_time_ns or case.first_ns, capture.last_time_ns or case.last_ns),
                f"{printable(capture.name)} holds {counted(n, 'IP fragment')}: packets exceed a"
                " link's MTU",
                "raise the MTU of the links, or lower the RoCE path MTU",
                confidence="likely",
                severity="warning",
                costs=False,
                packets=n,
            )
