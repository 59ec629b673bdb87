"""Packets that arrive late at the tap, and the path that they came over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....measures.troubles import LATE, Trouble
from ....results.diagnosis import Finding, Place, Severity
from ....results.flow import Flow
from ....summary.gaps import gaps_in
from ....wire.opcodes import MRC, TRANSPORT_NAMES
from ....words import printable
from ...case import Case
from ...finding import finding
from ...interval import span_of
from ...known import Known
from ...words import hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..places import before, only, tap_of

SLOW_SHARE = 0.8
"""Least share of the late packets that one path carried to be named the slow one."""
SLOW_FACTOR = 2
"""It also has at least this many times its share of the packets."""


def late_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets overtaken before the first tap of their flow.

    Where a gap may hide that a packet was lost, or asked for, its retransmission looks late.
    """
    troubles = case.measuring.troubles
    flows = [case.flows[f] for f in troubles.flows(LATE)]
    flows = [flow for flow in flows if flow.reordered_packets and not gaps_in(flow, case.gaps)]
    for group in by_hosts(flows):
        late = troubles.by_flow(LATE, (flow.id for flow in group))
        first, last = span_of(late.values())
        slow = slow_path(group)
        if slow is not None and known.slow_path(slow.tap, first, last):
            continue
        if all(
            known.explains("reordering", flow.id, first, last) or known.misplaced(flow, first, last)
            for flow in group
        ):
            continue
        same = of_same_hosts(case, group)
        could = sum(flow.data_packets for flow in same)
        packets = sum(trouble.packets for trouble in late.values())
        tap = tap_of(case, late.values())
        via = "" if slow is None else f", {slow.share} of them over {slow.name}"
        yield finding(
            case,
            "reordering",
            Place(to_tap=tap, direction="before the tap", host=only(f.src for f in group)),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are overtaken {before(case, tap)}"
            f"{via}",
            "compare the delay of the paths"
            if slow is None
            else f"look for a queue on {slow.name}",
            confidence="proven",
            seen=late.values(),
            severity=_severity(case, group, packets),
        )


def late_over(case: Case, tap: str | None, first_ns: int, last_ns: int) -> dict[int, Trouble]:
    """Late packets, by flow, whose slow path leads to this tap, where some come in this time."""
    troubles = case.measuring.troubles
    found: dict[int, Trouble] = {}
    for group in by_hosts(case.flows[f] for f in troubles.flows(LATE)):
        late = troubles.by_flow(LATE, (flow.id for flow in group))
        slow, (first, last) = slow_path(group), span_of(late.values())
        if slow is not None and tap == slow.tap and first <= last_ns and last >= first_ns:
            found |= late
    return found


class SlowPath(NamedTuple):
    """The path that carries nearly all late packets."""

    name: str
    share: str
    tap: str | None
    """None where the paths are source ports."""


def slow_path(group: list[Flow]) -> SlowPath | None:
    """The tap or source port that most late packets of sprayed flows came over."""
    for key, word in (("tap", ""), ("entropy", "source port ")):
        late: dict[str, int] = {}
        packets: dict[str, int] = {}
        for flow in group:
            for spraying in flow.spraying:
                if spraying.path_by == key and len(spraying.paths) > 1:
                    for path in spraying.paths:
                        late[path.path] = late.get(path.path, 0) + path.reordered_packets
                        packets[path.path] = packets.get(path.path, 0) + path.packets
        slow = _most(late, packets)
        if slow is not None:
            share = f"{100 * late[slow] / sum(late.values()):.0f} %"
            return SlowPath(f"{word}{printable(slow)}", share, slow if key == "tap" else None)
    return None


def _most(late: Mapping[str, int], packets: Mapping[str, int]) -> str | None:
    total = sum(late.values())
    if not total:
        return None
    slow = max(late, key=lambda path: late[path])
    usual = packets[slow] / sum(packets.values())
    share = late[slow] / total
    return slow if share >= SLOW_SHARE and share >= SLOW_FACTOR * usual else None


def _severity(case: Case, group: list[Flow], packets: int) -> Severity | None:
    """A note where nobody retransmits because of it, or the capture itself is out of order."""
    disordered = sum(capture.out_of_order_frames for capture in case.captures)
    if len(case.captures) == 1 and packets <= disordered:
        return "note"
    if all(flow.transport == TRANSPORT_NAMES[MRC] for flow in group):
        return "note"  # its receivers take packets in any order
    troubled = any(flow.retransmitted_packets or flow.recovery.naks for flow in group)
    return None if troubled else "note"
