"""Who is waited for in the steps of a training job, why, and what the network has to do with it.

A collective begins at a rank with the first data that the rank sends in it: `arrival`. The rank
could have sent it since it was `ready`: since the last message of the collective before, sent or
received, and since the receiver granted it. The time in between, its `delay`, is the rank's own:
computing, or launching. A rank that comes late because its inputs came late has no longer delay
than before, so that a victim of the network or of another rank is not blamed. From the last
arrival to the last message of a collective only the network works: its `transfer`.

A slow transfer shows its source in what carries it: a host that sends, or a tap in one direction.
Each is busy for so long per byte as messages are on their way over it, however
many share it. The source is busy longer per byte than in the other steps, and the messages that
take longer on the wire are those over it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from ...kernels.kernel import Bools, Floats, Ints
from ..results.jobs import Cause
from .steps import Edge, Epoch, bundles_of, shape_of

COSTLY: Final = 0.035
"""Of a step: a delay below that is the ordinary jitter of computing."""
NAMED: Final = 0.05
"""Of a step: who costs less is not named, because queues after the taps delay inputs, too."""
_COMMON: Final = 0.2
"""Share of the steps in which all edges pause between two collectives: the others are slow."""
_REGULAR: Final = 0.8
"""Share of the steps in which an edge carries its usual number of messages."""
_FEW_MISSING: Final = 0.05
"""Share of the messages of a step that may be missing, as those after the end of the capture."""
_NOISE: Final = 4.0
"""Times the usual deviation of the steps before: a slower step is no jitter."""


class Timeline(NamedTuple):
    """Collectives of the steps of one epoch. Times are ns since `origin_ns`, NaN where the taps do
    not show them."""

    origin_ns: int
    ranks: Sequence[int]
    """Numbers of the addresses that send data."""
    arrival: Floats
    """float64[steps, collectives, ranks]."""
    done: Floats
    """float64[steps, collectives, ranks]: last packet of the rank's own messages."""
    delay: Floats
    """float64[steps, collectives, ranks]: from ready to arrival."""
    granted: Floats
    """float64[steps, collectives, ranks]: from ready to the rank's grant for the first message."""
    end: Floats
    """float64[steps, collectives]: last packet of the last message."""
    payload: Floats
    """float64[collectives]: of a usual step."""
    last_messages: int
    """That an edge sends in the last collective, at most."""
    is_complete: bool
    """Whether the collectives of all edges are known, and all ranks that receive data send it."""
    has_inputs: Bools
    """bool[ranks]: the taps show data to the rank, and the number of messages of all data to and
    from it repeats itself. Of other ranks nobody knows why they are late."""
    is_granted: Bools
    """bool[ranks]: the taps show grants for what the rank sends."""
    first_data: Floats
    """float64[steps, ranks]: first packet that the rank sends in the step."""
    last_data: Floats
    """float64[steps, ranks]: last packet that it sends."""

    @property
    def transfer(self) -> Floats:
        """float64[steps, collectives]: from the last arrival to the end."""
        transfer: Floats = self.end - _over_ranks(np.fmax, self.arrival)
        return transfer

    @property
    def waits(self) -> Floats:
        """float64[steps, collectives]: how long the median rank waits for the last one."""
        if self.arrival.shape[2] < 2:
            return np.full(self.end.shape, np.nan)
        waits: Floats = _over_ranks(np.fmax, self.arrival) - _median(self.arrival, 2)
        return waits


def _over_ranks(function: np.ufunc, values: Floats) -> Floats:
    reduced: Floats = function.reduce(values, axis=2)
    return reduced


def _median(values: Floats, axis: int) -> Floats:
    """The median without NaN; NaN where there is nothing else."""
    known = ~np.isnan(values).all(axis=axis)
    result = np.full(known.shape, np.nan)
    if known.any():
        rows = np.moveaxis(values, axis, -1)[known]
        result[known] = np.nanmedian(rows, axis=-1)
    return result


def timeline(epoch: Epoch) -> Timeline:
    """The collectives of each step, by the numbers of messages that each edge sends in them.

    In a tree, a rank that always waits for the first message of another one, as a parent does for
    that of its child, is ready when that message has come. In a ring no rank waits for another one
    before its first message: one that comes after it in all steps is late.
    """
    edges, bounds = [bundle.whole for bundle in bundles_of(epoch.edges)], epoch.bounds_ns
    origin = int(bounds[0]) if len(bounds) else 0
    steps = max(0, len(bounds) - 1)
    ranks = sorted({edge.src for edge in edges})
    sent = [np.searchsorted(edge.begun_ns, bounds) for edge in edges]
    parts = _parts(epoch, edges, sent)
    count = max((len(part) for part in parts if part is not None), default=1)
    shape = steps, count, len(ranks)
    arrival, sent_ns, ready, granted, allowed = (np.full(shape, np.nan) for _ in range(5))
    end = np.full(shape[:2], np.nan)
    first_data, last_data = (
        np.full((steps, len(ranks)), np.nan),
        np.full((steps, len(ranks)), np.nan),
    )
    payload, last_messages = np.zeros(count), 0
    inputs: list[tuple[int, Floats]] = []
    pairs = {(edge.src, edge.dst) for edge in edges}
    both_ways = set() if shape_of(pairs)[0] == "ring" else pairs & {(b, a) for a, b in pairs}
    place = {rank: at for at, rank in enumerate(ranks)}
    for edge, at, part in zip(edges, sent, parts, strict=True):
        if steps and len(edge.begun_ns):
            _add_span(
                edge, at, origin, first_data[:, place[edge.src]], last_data[:, place[edge.src]]
            )
        if part is None or len(part) != count:
            continue
        begins = at[:-1, None] + part[None, :]
        ends = np.concatenate([begins[:, 1:], at[1:, None]], axis=1) - 1
        most, each = len(edge.begun_ns) - 1, np.diff(at)
        arrived = (edge.begun_ns[np.minimum(begins, most)] - origin).astype(np.float64)
        done = np.maximum.accumulate(edge.ended_ns - origin)[np.minimum(ends, most)].astype(float)
        came = (edge.ended_ns[np.minimum(begins, most)] - origin).astype(np.float64)
        if (edge.src, edge.dst) in both_ways:
            inputs.append((place[edge.dst], came))
        odd = np.abs(each - np.median(each)) > _FEW_MISSING * np.median(each)
        arrived[odd] = done[odd] = np.nan
        sizes = np.concatenate([[0], np.cumsum(edge.bytes)])
        carried = sizes[np.minimum(ends, most) + 1] - sizes[np.minimum(begins, most)]
        payload += np.median(carried, axis=0) if steps else 0
        last_messages = max(last_messages, int(np.median(each)) - int(part[-1]) if steps else 0)
        rank = place[edge.src]
        arrival[:, :, rank] = np.fmin(arrival[:, :, rank], arrived)
        sent_ns[:, :, rank] = np.fmax(sent_ns[:, :, rank], done)
        end = np.fmax(end, done)
        before = np.concatenate([[np.nan], done.reshape(-1)[:-1]]).reshape(done.shape)
        if begins[0, 0] > 0:
            before[0, 0] = float(edge.ended_ns[: begins[0, 0]].max() - origin)
        for rank in {edge.src, edge.dst} & place.keys():
            ready[:, :, place[rank]] = np.fmax(ready[:, :, place[rank]], before)
        given = _granted(edge, begins) - origin
        by_sender = allowed[:, :, place[edge.src]]
        allowed[:, :, place[edge.src]] = np.fmin(by_sender, given)
        if edge.dst in place:
            by_receiver = granted[:, :, place[edge.dst]]
            granted[:, :, place[edge.dst]] = np.fmin(by_receiver, given)
    for rank, came in inputs:
        first = came <= arrival[:, :, rank]
        always = np.mean(first, axis=0) >= ALWAYS if steps else np.zeros(count, bool)
        needed = np.where(first & always, came, np.nan)
        ready[:, :, rank] = np.fmax(ready[:, :, rank], needed)
    may_send = np.fmax(ready, np.where(allowed <= arrival, allowed, np.nan))
    return Timeline(
        origin, ranks, arrival, sent_ns, arrival - may_send, granted - ready, end, payload,
        last_messages,
        all(part is not None and len(part) == count for part in parts)
        and {edge.src for edge in edges} == {edge.dst for edge in edges},
        _has_inputs(ranks, edges, parts),
        ~np.isnan(allowed).all(axis=(0, 1)), first_data, last_data,
    )  # fmt: skip


def _has_inputs(ranks: Sequence[int], edges: Sequence[Edge], parts: Sequence[Ints | None]) -> Bools:
    known = [part is not None for part in parts]
    into = {edge.dst for edge, is_known in zip(edges, known, strict=True) if is_known}
    irregular = {
        end
        for edge, is_known in zip(edges, known, strict=True)
        if not is_known
        for end in (edge.src, edge.dst)
    }
    return np.array([rank in into and rank not in irregular for rank in ranks], bool)


def _parts(epoch: Epoch, edges: Sequence[Edge], sent: Sequence[Ints]) -> list[Ints | None]:
    """int64[collectives] of each edge: its messages of a step before each collective, ascending.

    A collective ends where all edges pause after as many messages. In a slow step they pause
    elsewhere, too: each rank as far as it gets without the late one. None for edges that do not
    send the same number of messages in nearly all steps.
    """
    each = [np.diff(at) for at in sent]
    steps = len(each[0]) if each else 0
    usual = [int(np.median(counts)) if steps else 0 for counts in each]
    regular = [
        bool(number and np.mean(counts == number) >= _REGULAR)
        for counts, number in zip(each, usual, strict=True)
    ]
    pauses = epoch.pauses_ns
    step = np.searchsorted(epoch.bounds_ns, pauses, side="right") - 1
    pauses, step = pauses[(step >= 0) & (step < steps)], step[(step >= 0) & (step < steps)]
    alike: dict[int, list[int]] = {}
    for at in np.flatnonzero(regular).tolist():
        alike.setdefault(usual[at], []).append(at)
    parts: list[Ints | None] = [None] * len(sent)
    for members in alike.values():
        places = np.array(
            [np.searchsorted(edges[e].begun_ns, pauses) - sent[e][step] for e in members]
        )
        together = np.all(places == places[0], axis=0) if len(pauses) else np.zeros(0, bool)
        numbers, times = np.unique(places[0][together], return_counts=True)
        common = numbers[(times >= max(2, _COMMON * steps)) & (numbers > 0)]
        for e in members:
            parts[e] = np.concatenate([[0], common]).astype(np.int64)
    return parts


def _add_span(edge: Edge, sent: Ints, origin: int, first: Floats, last: Floats) -> None:
    """First and last data of a rank, float64[steps], with those of one of its edges."""
    sends = np.flatnonzero(np.diff(sent) > 0)
    begun = (edge.begun_ns[sent[:-1][sends]] - origin).astype(np.float64)
    ended = np.maximum.accumulate(edge.ended_ns - origin)[sent[1:][sends] - 1].astype(np.float64)
    first[sends] = np.fmin(first[sends], begun)
    last[sends] = np.fmax(last[sends], ended)


ALWAYS: Final = 0.9
"""Share of the steps in which a rank sends its first message after that of another rank."""


def _granted(edge: Edge, messages: Ints) -> Floats:
    """When the receiver granted these messages of an edge; NaN where the grants are not seen.

    Each message uses one grant, in order. If the capture begins later, the earliest message that
    a grant can belong to is the one before which no later one is granted.
    """
    if not len(edge.granted_ns):
        return np.full(messages.shape, np.nan)
    before = np.searchsorted(edge.granted_ns, edge.begun_ns, side="right")
    missing = int((np.arange(1, len(before) + 1) - before).max())
    at = messages - max(missing, 0)
    granted = np.full(messages.shape, np.nan)
    seen = (at >= 0) & (at < len(edge.granted_ns))
    granted[seen] = edge.granted_ns[at[seen]]
    return granted


class Blame(NamedTuple):
    """A rank, and what it costs a step."""

    rank: int
    """Index in `Timeline.ranks`."""
    cause: Cause


class Verdicts(NamedTuple):
    """About the steps of one epoch."""

    usual_ns: float
    """What a step lasts without faults; NaN: unknown."""
    slow: Bools
    """bool[steps]: it lasts longer than its jitter explains."""
    blamed: list[Blame | None]
    """Of each slow step; None: no rank explains it."""
    network: list[bool]
    """Of each slow step: whether its transfers explain it."""


def usual_of(durations: Floats) -> tuple[float, float]:
    """(what a step lasts without faults, what is jitter) of float64[steps] ns, NaN: unknown.

    Slow steps may be most: they are apart from the others by more than jitter, which is what
    neighbours in time differ by.
    """
    known = durations[~np.isnan(durations)]
    if len(known) < 2:
        return np.nan, np.nan
    neighbours = float(np.median(np.abs(np.diff(known))))
    ordered = np.sort(known)
    least = max(COSTLY * float(ordered[0]), _NOISE * neighbours)
    apart = np.flatnonzero(np.diff(ordered) > least) + 1
    fine = next((ordered[:cut] for cut in apart if cut >= max(2, 0.15 * len(known))), ordered)
    usual = float(np.median(fine))
    return usual, max(COSTLY * usual, _NOISE * neighbours)


def judge(line: Timeline, durations: Floats) -> Verdicts:
    """Who or what makes the slow steps slow, each rank compared with itself in other steps.

    durations: float64[steps] ns.
    """
    usual, jitter = usual_of(durations)
    extra = durations - usual
    slow: Bools = np.nan_to_num(extra, nan=0.0) > jitter
    blamed: list[Blame | None] = [None] * len(durations)
    network = [False] * len(durations)
    fine = ~slow
    if not slow.any() or not fine.any():
        return Verdicts(usual, slow, blamed, network)
    late = _excess(line.delay, fine).sum(axis=1)
    late_grants = _excess(line.granted, fine).sum(axis=1)
    moved = np.nansum(line.transfer - _median(line.transfer[fine], 0), axis=1)
    for step in np.flatnonzero(slow).tolist():
        if not late.shape[1]:
            continue
        rank = int(np.argmax(late[step]))
        others = np.delete(late[step], rank)
        alone = len(others) > 1 and float(others.max()) < 0.6 * late[step, rank]
        alone = alone and bool(line.has_inputs[rank])
        is_costly = extra[step] >= NAMED * usual
        if not line.is_complete:  # a rank that does not show may be late, or slow transfers delay
            alone = alone and moved[step] <= 0.25 * extra[step] and bool(line.is_granted[rank])
        if late[step, rank] >= 0.5 * extra[step] and alone and is_costly:
            launched_late = late_grants[step, rank] >= 0.5 * late[step, rank]
            cause: Cause = "late_grants" if launched_late else "late_data"
            blamed[step] = Blame(rank, cause)
        elif moved[step] >= 0.5 * extra[step] and line.is_complete:
            network[step] = True
    return Verdicts(usual, slow, blamed, network)


def _excess(values: Floats, fine: Bools) -> Floats:
    """Above the median of the fine steps, of each collective and rank; 0 where unknown."""
    return np.nan_to_num(values - _median(values[fine], 0)[None], nan=0.0)


_SLOWER: Final = 1.3
"""A queue pair whose bytes take this many times their usual time on the wire is slowed."""
_SLOW_WAY: Final = 1.5
"""What carries data is slow if it is busy for this many times its usual time per byte."""
_PART_OF_EXTRA: Final = 0.25
"""Of what a slow step lasts longer: a slow way is busy longer by this, at least."""
_EXPLAINS: Final = 0.5
"""Of the queue pairs over a slow way and the slowed ones: those that are both."""


class Way(NamedTuple):
    """What carries data of several queue pairs."""

    kind: Literal["sender", "tap"]
    name: int | str
    """The number of an address, or a tap."""
    edges: frozenset[int]
    """Indices of the edges whose data passes it, in one direction."""


def ways_of(edges: Sequence[Edge], taps: Mapping[int, Sequence[str]]) -> list[Way]:
    """All of some edges. taps: of each flow, those that see most of it."""
    found: dict[tuple[Literal["sender", "tap"], int | str, int], set[int]] = defaultdict(set)
    sides: dict[str, dict[int, int]] = defaultdict(dict)
    for at, edge in enumerate(edges):
        found["sender", edge.src, 0].add(at)
        for tap in taps.get(edge.flow, ()):
            side = sides[tap]  # of the tap, on which an address is
            near = side.setdefault(edge.src, 1 - side.get(edge.dst, 1))
            side.setdefault(edge.dst, 1 - near)
            found["tap", tap, near].add(at)
    return [Way(kind, name, frozenset(members)) for (kind, name, _), members in found.items()]


class Wire:
    """How long the data of one epoch is on the wire, by step."""

    def __init__(
        self,
        epoch: Epoch,
        taps: Mapping[int, Sequence[str]],
        marked: Collection[int],
        slow: Bools,
        extra_ns: Floats,
    ) -> None:
        """marked: flows with CE marks; slow, extra_ns: bool[steps], and what each step lasts longer
        than usual."""
        self._edges, self._extra = epoch.edges, extra_ns
        self._fine = ~slow
        self._ways = ways_of(epoch.edges, taps)
        self._marked = {at for at, edge in enumerate(epoch.edges) if edge.flow in marked}
        bounds = epoch.bounds_ns
        self._by_edge = self._times_usual([on_wire([edge], bounds)[0] for edge in epoch.edges])
        both = [on_wire([epoch.edges[at] for at in way.edges], bounds) for way in self._ways]
        self._by_way = self._times_usual([each for each, _ in both])
        self._busy = np.array([busy for _, busy in both])

    def _times_usual(self, each: Sequence[Floats]) -> Floats:
        per_byte = np.array(each)
        times: Floats = per_byte / _median(per_byte[:, self._fine], 1)[:, None]
        return times

    def source(self, step: int) -> Way | None:
        """What makes the transfers of a slow step slow, if that shows.

        Where all data of a host passes one tap, the NIC or the link may be slow: then it is the
        host's, unless its data is marked CE, which the network does, and nothing tells.
        """
        times = self._by_edge[:, step]
        measured = {int(at) for at in np.flatnonzero(~np.isnan(times))}
        slowed = {at for at in measured if times[at] >= _SLOWER}
        best, sources = _EXPLAINS, list[Way]()
        for way, ratio, busy in zip(
            self._ways, self._by_way[:, step], self._busy[:, step], strict=True
        ):
            longer = busy * (1 - 1 / ratio) if ratio >= _SLOW_WAY else 0.0
            if longer < max(_PART_OF_EXTRA * self._extra[step], 1):
                continue
            over = way.edges & measured
            explains = len(over & slowed) / max(1, len(over | slowed))
            if explains > best or (explains == best and not sources):
                best, sources = explains, []
            if explains == best:
                sources.append(way)
        senders = [way for way in sources if way.kind == "sender"]
        if senders and len(senders) < len(sources) and not slowed.isdisjoint(self._marked):
            return None
        return next(iter(senders or sources), None)

    def addresses(self, way: Way) -> set[int]:
        """Both ends of the data that passes."""
        return {end for at in way.edges for end in self._edges[at][1:3]}


def on_wire(edges: Sequence[Edge], bounds: Ints) -> tuple[Floats, Floats]:
    """float64[steps] twice: ns per byte while messages of more than one packet are on their way
    (NaN without any), and ns of that."""
    begun = np.concatenate([edge.begun_ns for edge in edges])
    ended = np.concatenate([edge.ended_ns for edge in edges])
    sizes = np.concatenate([edge.bytes for edge in edges])
    order = np.flatnonzero(ended > begun)
    order = order[np.argsort(begun[order], kind="stable")]
    begun, ended, sizes = begun[order], np.maximum.accumulate(ended[order]), sizes[order]
    since = np.maximum(begun, np.concatenate([begun[:1], ended[:-1]]))
    at = np.searchsorted(begun, bounds)
    busy = np.diff(np.concatenate([[0], np.cumsum(ended - since)])[at]).astype(np.float64)
    carried = np.diff(np.concatenate([[0], np.cumsum(sizes)])[at])
    per_byte = np.full(len(busy), np.nan)
    np.divide(busy, carried, out=per_byte, where=carried > 0)
    return per_byte, busy
