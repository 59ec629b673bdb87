"""Who sprays: hosts over source ports, switches over parallel links."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.paths.tapsets import SPRAYED_WIDTH
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....results.paths import Spraying
from ....wire.opcodes import MRC, TRANSPORT_NAMES
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted


def sprays(case: Case, known: Known) -> Iterator[Finding]:
    """A note on hosts that spray their packets, and one on flows that switches spray."""
    by_host: dict[int, Spraying] = {}
    by_switch: dict[int, Spraying] = {}
    for flow in case.flows:
        kinds = {spraying.path_by: spraying for spraying in flow.spraying}
        entropy, tap = kinds.get("entropy"), kinds.get("tap")
        if entropy is not None and is_sprayed(entropy):
            by_host[flow.id] = entropy
        elif tap is not None and is_sprayed(tap):
            by_switch[flow.id] = tap
    if by_host:
        flows = [case.flows[f] for f in by_host]
        sources = sorted({flow.src for flow in flows})
        ports = max(spraying.paths_seen for spraying in by_host.values())
        mrc = any(flow.transport == TRANSPORT_NAMES[MRC] for flow in flows)
        who = (
            f"{printable(sources[0])} sprays"
            if len(sources) == 1
            else f"{len(sources)} hosts spray"
        )
        yield _finding(
            case,
            Place(host=sources[0] if len(sources) == 1 else None),
            flows,
            f"{who} {_counted(flows)} over {ports} {'entropy values' if mrc else 'source ports'}",
        )
    if by_switch:
        paths = max(spraying.paths_seen for spraying in by_switch.values())
        flows = [case.flows[f] for f in by_switch]
        says = f"switches spray {_counted(flows)} over {paths} parallel taps"
        yield _finding(case, Place(), flows, says)


def _counted(flows: list[Flow]) -> str:
    """`6 flows (2 of ACKs)`: other figures of spraying are of flows that carry data."""
    acks = sum(not flow.data_packets for flow in flows)
    text = counted(len(flows), "flow")
    return f"{text} ({acks:,} of ACKs)" if acks and acks < len(flows) else text


def is_sprayed(spraying: Spraying) -> bool:
    """True for a flow that alternates between paths; one that only moved left each permanently."""
    return (
        spraying.width >= SPRAYED_WIDTH
        and spraying.switches is not None
        and spraying.switches >= 2 * spraying.paths_seen
    )


def _finding(case: Case, place: Place, flows: list[Flow], says: str) -> Finding:
    packets = sum(flow.packets for flow in flows)
    return finding(
        case,
        "spraying",
        place,
        packets,
        says,
        "nothing, if the receivers accept packets out of order",
        hits={flow.id: flow.packets for flow in flows},
        confidence="proven",
        severity="note",
        costs=False,
    )
