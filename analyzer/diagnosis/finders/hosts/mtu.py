"""Path MTUs that do not fit: two directions that differ, and fragments."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import FRAGMENTED
from ....results.diagnosis import Finding, Place
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, hosts, packets_of
from ..groups import of_same_hosts
from ..hops.marks import SMALL_MTU
from ..places import before, tap_of


def fragments(case: Case, known: Known) -> Iterator[Finding]:
    """One finding for all packets that come to their first tap in IP fragments."""
    cut = case.measuring.troubles.by_flow(FRAGMENTED)
    if not cut:
        return
    flows = [case.flows[f] for f in cut]
    could = sum(flow.packets for flow in of_same_hosts(case, flows))
    taps = sorted({case.registry.tap_names[at] for t in cut.values() for _, _, at in t.frames})
    tap = tap_of(case, cut.values())
    packets = sum(trouble.packets for trouble in cut.values())
    where = f"{before(case, tap)}" if len(taps) == 1 else f"before {counted(len(taps), 'tap')}"
    yield finding(
        case,
        "mtu-mismatch",
        Place(to_tap=tap, direction="before the tap"),
        could,
        f"{packets_of(packets, could)} from {hosts(flows)} are IP fragments {where}:"
        " they exceed a link's MTU",
        SMALL_MTU,
        confidence="proven",
        seen=cut.values(),
    )


def mtu_mismatches(case: Case, known: Known) -> Iterator[Finding]:
    """Connections with two path MTUs."""
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
            sum(flow.packets for flow in flows),
            f"{counted(len(odd), 'connection')} ({hosts(flows)}) with path MTUs"
            f" {' and '.join(map(str, values))} in its two directions",
            "set one MTU on both hosts and all links",
            hits={flow.id: flow.packets for flow in flows},
            severity="warning",
            costs=False,
        )
