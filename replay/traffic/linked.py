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

from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Array, Int32s, Ints

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


NO_LINKS = Links(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))


class _Fit(NamedTuple):
    spread: float
    fixed: int
    of: int
    rows: Ints
    """Departures with an arrival of their own."""
    arrivals: Ints
    gaps: Ints


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
    flows, starts, counts = np.unique(flow, return_index=True, return_counts=True)
    rows = {int(f): np.arange(s, s + n) for f, s, n in zip(flows, starts, counts, strict=True)}
    into: dict[int, list[int]] = {}
    for f in sorted(rows, key=lambda f: -len(rows[f])):
        into.setdefault(int(dst[f]), []).append(f)
    # Clocks of taps may differ. No message arrives before it begins: none waits in a circle.
    arrived = np.maximum(np.where(acked_ns >= 0, acked_ns, ended_ns), begun_ns)
    parts: list[Links] = []
    told = Told()
    for g, own in rows.items():
        if len(own) < LEAST:
            continue
        begun = begun_ns[own]
        limit = _own_spread(begun, ended_ns[own], arrived[own])
        if limit is None:
            continue
        best: tuple[int, _Fit] | None = None
        for f in into.get(int(src[g]), ())[:MOST_SOURCES]:
            if f == g or f == int(peer[g]) or len(rows[f]) < LEAST - 1:
                continue
            fit = _fit(begun, np.maximum.accumulate(arrived[rows[f]]))
            if (
                fit is not None
                and fit.spread <= limit
                and (best is None or fit.spread < best[1].spread)
            ):
                best = f, fit
        if best is None:
            continue
        f, fit = best
        parts.append(
            Links(own[fit.rows].astype(np.int32), rows[f][fit.arrivals].astype(np.int32), fit.gaps)
        )
        told = Told(told.flows + 1, told.fixed + fit.fixed, told.of + fit.of)
    if not parts:
        return NO_LINKS, told
    return Links(*(np.concatenate(columns) for columns in zip(*parts, strict=True))), told


def _spread(times: Array) -> float:
    """Between the tenth and the ninetieth percentile."""
    low, high = np.percentile(times, (10, 90))
    return float(high - low)


def _own_spread(begun: Ints, ended: Ints, arrived: Ints) -> float | None:
    """How much the time since the previous message of a queue pair, or since its arrival, varies;
    None if its messages follow each other without a gap."""
    since = begun[1:] - ended[:-1]
    length = max(1.0, float(np.median(ended - begun)))
    if np.count_nonzero(since <= length / 10) >= SHARE * len(since) and length > 1:
        return None
    return max(1.0, min(_spread(since), _spread(begun[1:] - arrived[:-1])))


def _fit(begun: Ints, arrived: Ints) -> _Fit | None:
    """Departures and the last arrival before each; None without good evidence."""
    last = (
        np.searchsorted(arrived, begun) - 1
    )  # not at the same time: flows may not wait in a circle
    waits = np.flatnonzero(last >= 0)
    if len(waits) < LEAST - 1:
        return None
    new = waits[np.append(True, np.diff(last[waits]) > 0)]
    gaps = begun[new] - arrived[last[new]]
    middle = float(np.median(gaps))
    tolerance = max(TOLERANCE_NS, middle / 4)
    fixed = int(np.count_nonzero(np.abs(gaps - middle) <= tolerance))
    share = fixed / len(waits)
    span = max(1, int(begun[-1] - begun[waits[0]]))
    within = int(np.count_nonzero((arrived >= arrived[last[waits[0]]]) & (arrived <= begun[-1])))
    chance = min(1.0, within * 2 * tolerance / span)
    if share < SHARE or _tail(share, chance, len(waits)) > CHANCE:
        return None
    return _Fit(_spread(gaps), fixed, len(waits), new, last[new], gaps)


def _tail(share: float, chance: float, number: int) -> float:
    """Chernoff's bound of the probability that this share of independent trials succeeds."""
    if share <= chance:
        return 1.0
    distance = share * np.log(share / chance)
    if share < 1:
        distance += (1 - share) * np.log((1 - share) / (1 - chance))
    return float(np.exp(-number * distance))
