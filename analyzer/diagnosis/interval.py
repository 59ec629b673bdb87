"""Since when and until when: from the first and last hit, and the traffic before and after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..measures.troubles import Trouble
from ..results.flow import Flow
from .case import Case

EXPECTED = 5.0
"""Hits that the traffic before the first hit (after the last) would have had at the pace between
them, from which the fault begins with the first hit (ends with the last). A random fault leaves so
much traffic alone with a probability of exp(-5) = 0.7 %."""
PAUSES = 2
"""This time is also this many times the longest pause between two hits, because hits come in
bursts: a go-back-N receiver sends one NAK for many packets."""
ONSET = 3.0
"""The same for the uncertainty of the onset: exp(-3) = 5 %."""


class Interval(NamedTuple):
    """When a fault was active."""

    from_ns: int
    until_ns: int | None
    """None: still going on at the end of the capture."""
    uncertain_ns: int
    """The onset is at most this much before `from_ns`."""


def interval(
    case: Case, flows: Sequence[Flow], hits: int, span: tuple[int, int], pause_ns: int
) -> Interval:
    """The interval of a fault that hit `flows`.

    span: time of its first and last hit; pause_ns: longest time between two hits.
    """
    first, last = span
    begin = min((flow.first_time_ns for flow in flows), default=first)
    if hits < 2 or last <= first:
        return Interval(first, last, 0)
    between = traffic_bytes(case, flows, first, last)
    pace = (hits - 1) / between if between else 0.0
    before = pace * traffic_bytes(case, flows, begin, first)
    after = pace * traffic_bytes(case, flows, last, case.last_ns)
    uncertain = round(ONSET * (last - first) / (hits - 1))
    if before < EXPECTED or first - begin <= PAUSES * pause_ns:
        uncertain = first - begin
    is_over = after >= EXPECTED and case.last_ns - last > PAUSES * pause_ns
    goes_on = not is_over and _still_sends(case, flows, last)
    return Interval(first, None if goes_on else last, max(0, min(uncertain, first - begin)))


def life_of(case: Case, flows: Sequence[Flow]) -> tuple[int, int]:
    """Time of the first and of the last packet of these flows; without any, of the captures."""
    return (
        min((flow.first_time_ns for flow in flows), default=case.first_ns),
        max((flow.last_time_ns for flow in flows), default=case.last_ns),
    )


def packets_by_flow(troubles: Iterable[Trouble]) -> dict[int, int]:
    """Packets in trouble of each flow."""
    packets: dict[int, int] = {}
    for trouble in troubles:
        packets[trouble.flow] = packets.get(trouble.flow, 0) + trouble.packets
    return packets


def span_of(troubles: Iterable[Trouble]) -> tuple[int, int]:
    """Time of the first and of the last packet of these troubles, at least one."""
    spans = [(trouble.first_ns, trouble.last_ns) for trouble in troubles]
    return min(first for first, _ in spans), max(last for _, last in spans)


def longest_pause_ns(troubles: Sequence[Trouble]) -> int:
    """No two hits in a row of any of these flows are farther apart than this.

    Between two neighbouring first or last hits of flows, a pause is at most that of every flow
    that is hit before and after it.
    """
    first = np.array([trouble.first_ns for trouble in troubles], np.int64)
    last = np.array([trouble.last_ns for trouble in troubles], np.int64)
    pause = np.array([trouble.pause_ns for trouble in troubles], np.int64)
    times = np.unique(np.concatenate([first, last])).tolist()
    longest = 0
    # Differences of Python's integers: wild times are farther apart than int64 holds.
    for start, stop in sorted(pairwise(times), key=lambda two: two[0] - two[1]):
        if stop - start <= longest:
            break
        around = pause[(first <= start) & (last >= stop)]
        longest = max(longest, min([stop - start, *around.tolist()]))
    return longest


def traffic_bytes(case: Case, flows: Sequence[Flow], from_ns: int, until_ns: int) -> float:
    """Wire bytes of `flows` between two times, from the bins of their activity."""
    start, width = case.measuring.activity.start_ns, case.measuring.activity.width_ns
    total = 0.0
    first = max(0, (from_ns - start) // width)
    bins = max((len(flow.activity_bytes) for flow in flows), default=0)
    for at in range(first, min(bins, (until_ns - start) // width + 1)):
        low, high = start + at * width, start + (at + 1) * width
        part = (min(high, until_ns) - max(low, from_ns)) / width
        if part > 0:
            total += part * sum(f.activity_bytes[at] for f in flows if at < len(f.activity_bytes))
    return total


def _still_sends(case: Case, flows: Sequence[Flow], last: int) -> bool:
    """False when the flows ended long before the capture: nobody saw the fault continue."""
    end = max((flow.last_time_ns for flow in flows), default=last)
    return case.last_ns - end <= (case.last_ns - case.first_ns) / 20
