"""The traffic of a replay: flows, messages and their acknowledgements.

All packets of a unit have the same path under a hash: a one-way flow, or one entropy value
(UDP source port and flow label) of a flow that sprays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...analyzer.track import batch as verdicts
from ...analyzer.track.batch import TrackedBatch
from ...analyzer.wire import bth
from ...analyzer.wire.bth import unwrapped
from ...analyzer.wire.packets import HAS_AETH
from ...kernels.kernel import (
    Array,
    Bools,
    Bytes,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    Records,
    allocating,
    kernel,
)
from ..hashing.keys import PacketKeys
from ..results import HostMapping

if TYPE_CHECKING:
    from ...analyzer.results.flow import Owner


# Equal values of a column: their order, by counting instead of sorting.


def ordinals(values: Array) -> Ints:
    """int64[n]: number of equal values before each value; values from 0 on."""
    numbers = np.ascontiguousarray(values, np.int32)
    out = np.empty(len(numbers), np.int64)
    _count(numbers, np.zeros(int(numbers.max(initial=-1)) + 1, np.int64), out)
    return out


def rows_by(values: Array) -> Ints:
    """int64[n]: the rows in the order of their values, equal values in their own order."""
    numbers = np.ascontiguousarray(values, np.int32)
    counts = np.bincount(numbers)
    place, rows = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
    _count(numbers, np.cumsum(counts) - counts, place)
    rows[place] = np.arange(len(numbers))
    return rows


@kernel
def _count(values: Int32s, following: Ints, out: Ints) -> None:
    """out[i]: following[values[i]], which then grows by 1."""
    for i in range(len(values)):
        out[i] = following[values[i]]
        following[values[i]] += 1


# When messages were acknowledged, as the first tap saw it.

MOST_ACKS = 1 << 22
"""ACKs kept, 16 bytes each."""
_ACK = np.dtype([("time_ns", "i8"), ("flow", "i4"), ("psn", "u4")])


class AckTimes:
    """Positive ACKs of all flows."""

    def __init__(self, most: int = MOST_ACKS) -> None:
        self._most, self._count = most, 0
        self._parts: list[Records] = []
        self.full = False
        """Too many: no times are known."""

    def update(self, batch: TrackedBatch) -> None:
        """Take the ACKs of a batch, first copies only."""
        table = batch.table
        bits = bth.OPCODE_CLASS[table.opcode]
        positive = (table.aeth >> 24) & bth.SYNDROME_KIND_MASK == bth.SYNDROME_ACK
        acknowledges = (
            (bits & bth.ACKNOWLEDGE != 0) & (table.decode_flags & HAS_AETH != 0) & positive
        )
        rows = np.flatnonzero(acknowledges & (batch.verdict == verdicts.NOT_SEQUENCED))
        self.full |= self._count + len(rows) > self._most
        if self.full:
            self._parts = []
            return
        part = np.zeros(len(rows), _ACK)
        part["time_ns"], part["flow"] = table.time_ns[rows], batch.flow[rows]
        part["psn"] = table.psn[rows]
        self._parts.append(part)
        self._count += len(rows)

    def of(self, flow: Int32s, last_psn: Array, peer: Int32s) -> Ints:
        """int64[messages]: first ACK of each message, by its flow and last PSN; -1: not seen.

        Messages are sorted by flow and begin. peer: by flow, -1 for none."""
        acked = np.full(len(flow), -1, np.int64)
        if self.full or not self._parts or not len(flow):
            return acked
        acks = np.concatenate(self._parts)
        acks = acks[np.argsort(acks["flow"], kind="stable")]
        flows, starts = np.unique(flow, return_index=True)
        for f, rows in zip(flows.tolist(), np.split(np.arange(len(flow)), starts[1:]), strict=True):
            other = int(peer[f])
            if other < 0:
                continue
            begin, end = np.searchsorted(acks["flow"], (other, other + 1))
            if begin == end:
                continue
            both = np.concatenate([last_psn[rows[:1]], acks["psn"][begin:end]])
            covered = np.maximum.accumulate(unwrapped(both)[1:])
            wanted = unwrapped(last_psn[rows])
            first = np.searchsorted(covered, wanted)
            is_covered = first < len(covered)
            acked[rows[is_covered]] = acks["time_ns"][begin:end][first[is_covered]]
        return acked


# Messages that wait for messages of other queue pairs of their host, inferred from a capture.
#
# A queue pair is linked to one that ends at its host if its messages leave a fixed time after the
# others have arrived: in pairs of a departure and the last arrival before it, most of these times
# are within a tolerance of their median, more than unrelated times would be by chance, and they
# vary no more than the time since the queue pair's own previous message or its ACK. A queue pair
# whose messages follow each other without a gap is not linked: its line explains its times.
#
# An arrival is the first sighting of the message's ACK (by a tap at the receiver the time of the
# arrival itself), without ACKs the message's last packet.

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
    evidence = _link(
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
    return links, Told(*(int(number) for number in evidence))


@allocating
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
    latest, longest = np.empty(len(arrived), np.int64), 0
    for i in range(len(arrived)):
        latest[i] = arrived[i]
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


@allocating
def _sorted(values: Ints) -> Ints:
    """A sorted copy, by heap sort: numba's own sorts call numba at run time."""
    heap = np.empty(len(values), np.int64)
    for i in range(len(values)):
        heap[i] = values[i]
    end = len(heap)
    root = end // 2
    while end > 1:
        if root > 0:
            root -= 1
        else:
            end -= 1
            heap[0], heap[end] = heap[end], heap[0]
        at = root
        while 2 * at + 1 < end:
            child = 2 * at + 1
            if child + 1 < end and heap[child + 1] > heap[child]:
                child += 1
            if heap[at] >= heap[child]:
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child
    return heap


@allocating
def _spread(times: Ints) -> float:
    """Between the tenth and the ninetieth percentile."""
    ordered = _sorted(times)
    return _quantile(ordered, 0.9) - _quantile(ordered, 0.1)


@allocating
def _own_spread(begun: Ints, ended: Ints, arrived: Ints) -> float:
    """How much the time since the previous message of a queue pair, or since its arrival, varies;
    -1 if its messages follow each other without a gap."""
    since = begun[1:] - ended[:-1]
    length = max(1.0, _quantile(_sorted(ended - begun), 0.5))
    short = 0
    for pause in since:
        short += pause <= length / 10
    if short >= SHARE * len(since) and length > 1:
        return -1.0
    return max(1.0, min(_spread(since), _spread(begun[1:] - arrived[:-1])))


@allocating
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
    ordered = _sorted(ordered)
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


ON_ACKED, ON_RECEIVED = 0, 1
"""The end at which the predecessor of a message must be complete: its sender or its receiver."""


class Windows(NamedTuple):
    """Bytes of units in equal time windows; only windows with bytes of the unit."""

    width_ns: int
    start_ns: int
    """Begin of window 0."""
    unit: Int32s
    """Sorted by unit, then by window."""
    window: Int32s
    wire_bytes: Ints


class Seen(NamedTuple):
    """Packets of units at taps, copies at other taps included; one row per unit and tap."""

    taps: tuple[str, ...]
    unit: Int32s
    tap: Int32s
    packets: Ints
    wire_bytes: Ints


class PacketTimes(NamedTuple):
    """The packets of messages, sorted by message."""

    unit: Int32s
    time_ns: Ints
    """Since the Unix epoch."""
    wire_bytes: Int32s


class Besides(NamedTuple):
    """Further predecessors, in equally long columns: message `message` waits for `after`."""

    message: Int32s
    after: Int32s
    on: Bytes


NONE_BESIDES = Besides(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint8))


class SentMessages(NamedTuple):
    """The messages of flows, without retransmissions."""

    flow: Int32s
    """As in `Traffic.flow`. Messages are sorted by flow and `responses`, then by begin."""
    responses: Bools
    """Data of a READ, which a queue pair sends in addition to its own requests."""
    packets: Ints
    payload_bytes: Ints
    wire_bytes: Ints
    begun_ns: Ints
    """Time of the first packet since the Unix epoch."""
    ended_ns: Ints
    after: Int32s
    """The predecessor, which must be complete first; -1 for none."""
    on: Bytes
    """ON_ACKED or ON_RECEIVED."""
    times: PacketTimes | None = None
    """None if there are too many packets."""
    notes: tuple[str, ...] = ()
    """Known and unknown dependencies, in words."""
    left_out: tuple[str, ...] = ()
    """Packets that are not part of a message."""
    links: Links = NO_LINKS
    """Messages that wait for arrivals from other queue pairs; they have no other predecessor."""
    besides: Besides = NONE_BESIDES
    evidence: Told = Told()
    """Of `links`."""
    idle_ns: Ints = np.zeros(0, np.int64)
    """int64[messages]: from the end of what a message waits for, or of the message before it if
    that ends later, to its first packet; empty if it was not searched."""


@dataclass(frozen=True)
class Traffic:
    """Equally long columns, one row per unit."""

    keys: PacketKeys
    src_host: Int32s
    """Host of the fabric; -1 if the address belongs to no host."""
    dst_host: Int32s
    flow: Int32s
    """Index of the one-way flow, from 0; a flow that sprays has several units."""
    packets: Ints
    wire_bytes: Ints
    first_ns: Ints
    """Time of the first packet since the Unix epoch."""
    last_ns: Ints
    windows: Windows | None = None
    unmapped: tuple[str, ...] = ()
    """Addresses that belong to no host of the fabric."""
    warnings: tuple[str, ...] = ()
    """Parts of the captures that could not be read."""
    messages: SentMessages | None = None
    """None if they were not requested."""
    seen: Seen | None = None
    """None with one tap, and for patterns."""
    mapping: HostMapping | None = None
    """The hosts of the addresses of a capture; None for patterns."""
    owners: Mapping[int, Owner] = field(default_factory=dict)
    """By flow, from logs of the job."""
    has_data: Bools | None = None
    """bool[units]: not only ACKs and CNPs; None: all units have data."""

    dscp: Bytes | None = None
    """uint8[units]: DSCP of the first packet with data, else of the first packet; None: unknown."""

    def __len__(self) -> int:
        return len(self.flow)

    @property
    def flows(self) -> int:
        """Number of one-way flows."""
        return int(self.flow.max(initial=-1)) + 1

    def counted(self) -> Ints:
        """int64[units]: 1 for the units that a FIM of flows counts: those with data, or all if none
        has."""
        every = np.ones(len(self), np.int64)
        if self.has_data is None or not self.has_data.any():
            return every
        return self.has_data.astype(np.int64)

    def take(self, rows: Array) -> Traffic:
        """The selected units (indices or a mask) with their windows; flows keep their numbers."""
        rows = np.arange(len(self))[rows]
        new = np.full(len(self), -1, np.int32)
        new[rows] = np.arange(len(rows))
        windows, seen = self.windows, self.seen
        if windows is not None:
            unit = new[windows.unit]
            order = np.lexsort((windows.window, unit))
            order = order[unit[order] >= 0]
            windows = windows._replace(
                unit=unit[order], window=windows.window[order], wire_bytes=windows.wire_bytes[order]
            )
        if seen is not None:
            kept = new[seen.unit] >= 0
            seen = Seen(
                seen.taps,
                new[seen.unit[kept]],
                seen.tap[kept],
                seen.packets[kept],
                seen.wire_bytes[kept],
            )
        messages = self.messages and _of_units(self.messages, rows, self.flow)
        columns = ("src_host", "dst_host", "flow", "packets", "wire_bytes", "first_ns", "last_ns")
        taken: dict[str, Any] = {name: getattr(self, name)[rows] for name in columns}
        return replace(
            self,
            keys=self.keys.take(rows),
            windows=windows,
            messages=messages,
            seen=seen,
            has_data=None if self.has_data is None else self.has_data[rows],
            dscp=None if self.dscp is None else self.dscp[rows],
            **taken,
        )


def _of_units(messages: SentMessages, rows: Array, flow: Int32s) -> SentMessages:
    """The messages of flows with a remaining unit, without dependencies on removed messages.

    Packets of removed units count for the first remaining unit of their flow.
    """
    kept = np.isin(messages.flow, flow[rows])
    place = np.full(len(kept) + 1, -1, np.int32)  # the last item stands for no message
    place[:-1][kept] = np.arange(int(kept.sum()), dtype=np.int32)
    times = messages.times
    if times is not None:
        first = np.full(int(flow.max(initial=-1)) + 1, -1, np.int32)
        first[flow[rows][::-1]] = np.arange(len(rows), dtype=np.int32)[::-1]
        new = first[flow]
        new[rows] = np.arange(len(rows), dtype=np.int32)
        of_kept = np.repeat(kept, messages.packets)
        times = PacketTimes(
            new[times.unit[of_kept]], times.time_ns[of_kept], times.wire_bytes[of_kept]
        )
    columns = (
        "flow", "responses", "packets", "payload_bytes", "wire_bytes", "begun_ns", "ended_ns", "on"
    )  # fmt: skip
    taken: dict[str, Any] = {name: getattr(messages, name)[kept] for name in columns}
    links = messages.links
    both = kept[links.message] & kept[links.after]
    links = Links(place[links.message[both]], place[links.after[both]], links.gap_ns[both])
    after = place[messages.after[kept]]
    if len(messages.idle_ns):
        taken["idle_ns"] = messages.idle_ns[kept]
    return messages._replace(after=after, times=times, links=links, **taken)


# Bytes per unit and time window, only for windows with bytes of the unit.

MAX_CELLS = 1 << 22
"""Maximum of (unit, window) pairs; with more pairs the windows double in width."""

_WINDOW: Final = 0xFFFFFFFF


class WindowCells:
    """Sums, updated in batches; memory is bounded by units and `MAX_CELLS`."""

    def __init__(self, width_ns: int) -> None:
        self._width_ns = width_ns
        self._start_ns = 0
        self._key = np.zeros(0, np.int64)  # unit << 32 | window
        self._bytes = np.zeros(0, np.int64)
        self._waiting: list[tuple[Ints, Ints]] = []

    def add(self, unit: Array, time_ns: Ints, size: Array) -> None:
        """Add packets: the unit, time and bytes of each."""
        if not len(unit):
            return
        if not self._start_ns:
            self._start_ns = int(time_ns.min()) // self._width_ns * self._width_ns
        while (int(time_ns.max()) - self._start_ns) // self._width_ns >= 1 << 31:
            self._widen()
        # Late rows from before the first row count in its window.
        window = np.maximum(0, (time_ns - self._start_ns) // self._width_ns)
        key = unit.astype(np.int64) << 32 | window
        self._waiting.append(_summed(key, size.astype(np.int64)))
        if sum(len(key) for key, _ in self._waiting) > MAX_CELLS // 4:
            self._compact()
            while len(self._key) > MAX_CELLS and (self._key & _WINDOW).any():
                self._widen()

    def windows(self) -> Windows:
        """The sums so far."""
        self._compact()
        return Windows(
            width_ns=self._width_ns,
            start_ns=self._start_ns,
            unit=(self._key >> 32).astype(np.int32),
            window=(self._key & _WINDOW).astype(np.int32),
            wire_bytes=self._bytes,
        )

    def _compact(self) -> None:
        keys, sizes = zip((self._key, self._bytes), *self._waiting, strict=True)
        self._waiting = []
        self._key, self._bytes = _summed(np.concatenate(keys), np.concatenate(sizes))

    def _widen(self) -> None:
        self._compact()
        self._width_ns *= 2
        key = self._key >> 32 << 32 | (self._key & _WINDOW) >> 1
        self._key, self._bytes = _summed(key, self._bytes)


def _summed(key: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Distinct keys in order, and the sum of the values of each."""
    if not len(key):
        return key, value
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    first = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    return key[first], np.add.reduceat(value, first)
