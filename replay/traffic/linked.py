"""Messages that wait for messages of other queue pairs of their host, inferred from a capture.

A queue pair is linked to one that ends at its host if its messages leave a fixed time after the
others have arrived: in pairs of a departure and the last arrival before it, most of these times
are within a tolerance of their median, more than unrelated times would be by chance, and they vary
no more than the time since the queue pair's own previous message or its ACK. A queue pair whose
messages follow each other without a gap is not linked: its line explains its times.

An arrival is the first sighting of the message's ACK (by a tap at the receiver the time of the
arrival itself), without ACKs the message's last packet.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Int32s, Ints, kernel
from ...kernels.named import NamedTuple

LEAST = 8
"""Departures of a linked queue pair."""
SHARE = 0.8
"""Of departures within the tolerance, at least."""
TOLERANCE_NS = 1_000
"""At least; else a quarter of the median time."""
CHANCE = 1e-6
"""That unrelated departures are as often within the tolerance, at most (Chernoff's bound)."""
MOST_SOURCES = 64
"""Queue pairs that end at a host and are compared with each one that begins there."""


class Links(NamedTuple):
    """Equally long columns: message `message` leaves `gap_ns` after `after` arrived."""

    message: Int32s
    after: Int32s
    gap_ns: Ints


class Told(NamedTuple):
    """The evidence."""

    flows: int = 0
    """Linked queue pairs."""
    fixed: int = 0
    """Messages that leave within the tolerance of the fixed time."""
    of: int = 0
    """Messages of linked queue pairs after the first arrival."""
    not_compared: int = 0
    """Pairs of queue pairs beyond MOST_SOURCES."""


NO_LINKS = Links(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))


def linked(
    flow: Int32s,
    begun_ns: Ints,
    ended_ns: Ints,
    acked_ns: Ints,
    src: Int32s,
    dst: Int32s,
    peer: Int32s,
) -> tuple[Links, Told]:
    """The links of messages. flow, begun_ns, ended_ns, acked_ns (-1: not seen): one row per
    message, sorted by flow and begin. src, dst, peer: host addresses and reverse flow by flow."""
    first, starts, counts = np.unique(flow, return_index=True, return_counts=True)
    # Clocks of taps may differ. No message arrives before it begins: none waits in a circle.
    arrived = np.maximum(np.where(acked_ns >= 0, acked_ns, ended_ns), begun_ns)
    # The flows that end at a host, those with the most messages first.
    into = np.lexsort((-counts, dst[first]))
    hosts = dst[first][into]
    place = np.full(len(dst), -1, np.int64)
    place[first] = np.arange(len(first))
    peers = peer[first]
    after, gaps = np.full(len(flow), -1, np.int64), np.zeros(len(flow), np.int64)
    told = _link(
        np.append(starts, len(flow)),
        begun_ns,
        ended_ns,
        arrived,
        np.where(peers < 0, -1, place[peers]),
        into,
        np.searchsorted(hosts, src[first], "left"),
        np.searchsorted(hosts, src[first], "right"),
        after,
        gaps,
    )
    rows = np.flatnonzero(after >= 0)
    links = Links(rows.astype(np.int32), after[rows].astype(np.int32), gaps[rows])
    return links, Told(*(int(number) for number in told))


@kernel
def _link(
    begin: Ints,
    begun: Ints,
    ended: Ints,
    arrived: Ints,
    peer: Ints,
    into: Ints,
    low: Ints,
    high: Ints,
    after: Ints,
    gaps: Ints,
) -> tuple[Int, Int, Int, Int]:
    """Link flows; returns the fields of `Told`. begin: first message by flow, and the end.
    into[low:high]: the flows that end where a flow begins. after, gaps: set for linked messages."""
    flows = fixed = of = not_compared = 0
    latest, longest = arrived.copy(), 0
    for f in range(len(begin) - 1):
        longest = max(longest, begin[f + 1] - begin[f])
        for i in range(begin[f] + 1, begin[f + 1]):
            latest[i] = max(latest[i], latest[i - 1])
    last, since = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for g in range(len(begin) - 1):
        start, end = begin[g], begin[g + 1]
        if end - start < LEAST:
            continue
        limit = _own_spread(begun[start:end], ended[start:end], arrived[start:end])
        if limit < 0:
            continue
        best, least = -1, np.inf
        most = min(high[g], low[g] + MOST_SOURCES)
        not_compared += high[g] - most
        for i in range(low[g], most):
            f = into[i]
            if f == g or f == peer[g] or begin[f + 1] - begin[f] < LEAST - 1:
                continue
            spread, _, _ = _fit(begun[start:end], latest[begin[f] : begin[f + 1]], last, since)
            if 0 <= spread <= limit and spread < least:
                best, least = f, spread
        if best >= 0:
            begins = begin[best]
            _, close, waits = _fit(begun[start:end], latest[begins : begin[best + 1]], last, since)
            flows, fixed, of = flows + 1, fixed + close, of + waits
            for i in range(end - start):
                if last[i] >= 0:
                    after[start + i] = begins + last[i]
                    gaps[start + i] = since[i]
    return flows, fixed, of, not_compared


@kernel
def _quantile(ordered: Ints, share: float) -> float:
    """Of sorted times, between its neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@kernel
def _spread(times: Ints) -> float:
    """Between the tenth and the ninetieth percentile."""
    ordered = np.sort(times)
    return _quantile(ordered, 0.9) - _quantile(ordered, 0.1)


@kernel
def _own_spread(begun: Ints, ended: Ints, arrived: Ints) -> float:
    """How much the time since the previous message of a queue pair, or since its arrival, varies;
    -1 if its messages follow each other without a gap."""
    since = begun[1:] - ended[:-1]
    length = max(1.0, _quantile(np.sort(ended - begun), 0.5))
    if np.count_nonzero(since <= length / 10) >= SHARE * len(since) and length > 1:
        return -1.0
    return max(1.0, min(_spread(since), _spread(begun[1:] - arrived[:-1])))


@kernel
def _fit(begun: Ints, arrived: Ints, last: Ints, since: Ints) -> tuple[float, Int, Int]:
    """(spread, departures within the tolerance, departures after the first arrival) of departures
    and the last arrival before each; spread -1 without good evidence. arrived: sorted.

    last, since: set to the arrival and the time since it; -1 for departures without an arrival of
    their own."""
    waits = count = 0
    first = before = at = -1
    for i in range(len(begun)):
        # Not at the same time: flows may not wait in a circle.
        while at + 1 < len(arrived) and arrived[at + 1] < begun[i]:
            at += 1
        while at >= 0 and arrived[at] >= begun[i]:
            at -= 1
        last[i] = -1
        if at < 0:
            continue
        if waits == 0:
            first = i
        if waits == 0 or at > before:
            last[i], since[i] = at, begun[i] - arrived[at]
            count += 1
        waits += 1
        before = at
    if waits < LEAST - 1:
        return -1.0, 0, 0
    ordered = np.empty(count, np.int64)
    count = 0
    for i in range(len(begun)):
        if last[i] >= 0:
            ordered[count] = since[i]
            count += 1
    ordered.sort()
    middle = _quantile(ordered, 0.5)
    tolerance = max(float(TOLERANCE_NS), middle / 4)
    fixed = within = 0
    for i in range(count):
        fixed += abs(ordered[i] - middle) <= tolerance
    for i in range(len(arrived)):
        within += arrived[last[first]] <= arrived[i] <= begun[-1]
    span = max(1, begun[-1] - begun[first])
    chance = min(1.0, within * 2 * tolerance / span)
    share = fixed / waits
    if share < SHARE or _tail(share, chance, waits) > CHANCE:
        return -1.0, 0, 0
    return _quantile(ordered, 0.9) - _quantile(ordered, 0.1), fixed, waits


@kernel
def _tail(share: float, chance: float, number: Int) -> float:
    """Chernoff's bound of the probability that this share of independent trials succeeds."""
    if share <= chance:
        return 1.0
    distance = share * np.log(share / chance)
    if share < 1:
        distance += (1 - share) * np.log((1 - share) / (1 - chance))
    return np.exp(-number * distance)
