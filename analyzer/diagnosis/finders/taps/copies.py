"""Packets that the network duplicates before the tap."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import COPIED
from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
from ...interval import span_of
from ...known import Known
from ...words import hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..places import before, only, tap_of

TWICE = 0.4
"""Share of copies from which it is the capture that sees its packets twice: two mirror ports, or
both ends of a bond. A network that doubles everything does not exist."""


def copies_before(case: Case, known: Known) -> Iterator[Finding]:
    """The same transmission seen again at the same tap with the same hop limit."""
    troubles = case.measuring.troubles
    for group in by_hosts(case.flows[f] for f in troubles.flows(COPIED)):
        copied = troubles.by_flow(COPIED, (flow.id for flow in group))
        could = sum(flow.packets for flow in of_same_hosts(case, group))
        packets = sum(trouble.packets for trouble in copied.values())
        tap = tap_of(case, copied.values())
        span = span_of(copied.values())
        if all(known.explains("duplication", f, *span) for f in copied):
            continue
        if packets > TWICE * could:
            name = "the capture" if tap is None else printable(tap)
            yield finding(
                case,
                "duplication",
                Place(capture=tap),
                could,
                f"{name} holds {packets_of(packets, could)} from {hosts(group)} twice",
                "mirror every packet once; editcap -d removes the copies",
                seen=copied.values(),
                severity="note",
                costs=False,
            )
            continue
        yield finding(
            case,
            "duplication",
            Place(to_tap=tap, direction="before the tap", host=only(f.src for f in group)),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are duplicated {before(case, tap)}",
            "look for a loop, or a device that copies packets, before the tap",
            confidence="proven",
            seen=copied.values(),
            severity="warning",
            costs=False,
        )
