"""Training jobs in the times of messages: which flows belong together, and where steps end.

A training job repeats itself: in every step each of its flows carries the same messages after the
same pauses. The number of messages after which a flow repeats itself is its *rhythm*; it survives
a slow step, a slow link and a retransmission, which change times only. A flow belongs to the job
of another flow if it carries the same number of messages in each of its steps. Steps end where all
flows of the job are idle: after a marker (a collective of a few bytes, as clipping gradients does
before the optimizer runs), else at the longest idle time that every step has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ...kernels.kernel import Floats, Ints, Records
from ..results.jobs import Boundary, Pattern

FEWEST_PERIODS: Final = 3
SHORTEST_PERIOD_NS: Final = 1_000_000
"""Requests and responses that take turns repeat themselves, too; a training step is longer."""
_LEAST_CONVENTION_NS: Final = 5_000_000
"""Without a common pause, a shorter period may be one of the slices of a collective."""
_LEAST_OF_FEW_NS: Final = 10_000_000
"""Where only few periods show, shorter ones may be buckets or layers of one step."""
LEAST_IDLE: Final = 0.02
"""Of a step: a shorter common pause shows no boundary."""
_LEAST_PAUSE: Final = 0.004
"""Of a step: a shorter pause between messages separates no collectives."""
_LEAST_OF: Final = 0.1
"""Of the longest usual pause: a shorter one is no boundary, although whole steps fit to it."""
_LEAST_SWAY: Final = 0.06
"""Of a period: what steps differ by."""
_LIKE: Final = 0.7
"""Of the usual pause between steps: a shorter one after the last message of the clock is none."""
_MARKER: Final = 64
"""A marker's messages have less than one 64th of the largest ones' payload."""
_NO_JOB: Final = (
    "no grants of NCCL, and no ring, tree or exchange with a pause that all its queue pairs share"
)
_MOST_MESSAGES: Final = 1 << 13
"""Of a flow: its rhythm is looked for in the first ones."""
_LAGS: Final = 48
_IRREGULAR: Final = 0.18
_IRREGULAR_FEW: Final = 0.12
_LIKE_PAUSES: Final = 0.8
"""Of the longest pause of a period: parts of it that end with such pauses are steps."""
_DISTURBED: Final = 0.35
_USUALLY: Final = 0.05
"""Timeouts and other faults change some periods much: most of the others are alike."""
_ABOUT: Final = 0.1
"""Of a number of messages: rhythms that differ by less are the same one."""
_MANY_PERIODS: Final = 8
"""With fewer periods, parts of a step that are about alike look like steps."""
SILENT_PERIODS: Final = 5
"""A longer silence ends an epoch."""
_MOST_OF: Final = 0.7
"""Share of the steps that have a pause where the others have one."""
_WHOLE: Final = 0.98
"""A first or last step with this share of the usual messages is complete."""
_SWAY: Final = 0.6
"""Of a period: a flow of the same job is not further ahead in one step than in another."""
_BINS: Final = 20
_SPREAD: Final = 0.9
"""Messages that are spread more evenly over the steps of a job have nothing to do with them."""
_LIFE_PERIODS: Final = 3
_SAME_PERIOD: Final = 0.02
"""Of a period: what those of flows of one job differ by at the same time."""
_MOST_PLACES: Final = 0.5
_LONGER: Final = 0.1
"""Of a period: edges with pauses that are shorter by this are no clocks."""
_MOST_CLOCKS: Final = 12
_FEWEST_TOGETHER: Final = 6
_TOGETHER: Final = 0.02
"""Of a period: steps of parts of one job end together."""
_LIKE_EACH_OTHER: Final = 0.9
"""Correlation of the durations of steps of parts of one job."""
_SWAY_OF_PARTS: Final = 0.15
"""Of a period: collectives of one job end at different times in its slow steps."""
_SAME_STEPS: Final = 0.95
"""Correlation of the durations of steps of parts that end at different times."""
_DRIFT: Final = 0.05
"""Of a period: what a flow gains or loses in all steps together, if it is of the same job."""


class Edge(NamedTuple):
    """Data of one flow, by its messages in the order of their first packets."""

    flow: int
    src: int
    dst: int
    begun_ns: Ints
    ended_ns: Ints
    bytes: Ints
    granted_ns: Ints
    """Times of the grants that the receiver sent on the other flow of the connection."""
    grants: int | None
    """That flow."""


class Rhythm(NamedTuple):
    """A flow repeats itself after this number of messages."""

    messages: int
    period_ns: float
    irregularity: float
    """Mean change of the period from one to the next, as a share of the period."""


@dataclass(frozen=True)
class Epoch:
    """A time in which a job keeps its queue pairs."""

    edges: Sequence[Edge]
    bounds_ns: Ints
    """int64[steps + 1]: each step's messages begin in [bounds_ns[i], bounds_ns[i + 1]); empty
    without steps."""
    starts_whole: bool
    """Whether the first step is complete: its messages are as many as those of the others."""
    rest_from_ns: int | None
    """Begin of messages after the last complete step, if there are some."""
    pauses_ns: Ints
    """Ends of the pauses of all edges that may separate collectives, ascending."""

    @property
    def known_durations(self) -> int:
        """Steps that begin with the end of another one."""
        return max(0, len(self.bounds_ns) - 1 - self.starts_whole)


@dataclass
class Group:
    """The flows of one job."""

    edges: list[Edge]
    rhythm: Rhythm | None = None
    clocks: list[tuple[Edge, Rhythm]] = field(default_factory=list)
    """Edges that count its steps, best first."""
    boundary: Boundary = "convention"
    epochs: list[Epoch] = field(default_factory=list)
    reason: str | None = None
    """Why it has no steps."""

    @property
    def addresses(self) -> list[int]:
        """Numbers of its addresses in Endpoints, ascending."""
        return sorted({end for edge in self.edges for end in (edge.src, edge.dst)})


def edges_of(messages: Records, flows: Records, granting_flows: Collection[int]) -> list[Edge]:
    """The flows that carry data.

    messages: of a `MessageLog`, by flow; flows: FLOW records; granting_flows: whose grants are
    decoded. A flow of messages of the form of grants belongs to the data of the other direction.
    """
    if not len(messages):
        return []
    numbers, first = np.unique(messages["flow"], return_index=True)
    last = np.append(first, len(messages))[1:]
    rows = dict(zip(numbers.tolist(), zip(first.tolist(), last.tolist(), strict=True), strict=True))
    payload = {f: int(messages["bytes"][a:b].sum()) for f, (a, b) in rows.items()}
    grants: dict[int, int] = {}
    granting: set[int] = set()
    for flow, (a, b) in rows.items():
        peer = int(flows["peer"][flow])
        looks_so = messages["may_grant"][a:b].all()
        if flow in granting_flows or (looks_so and payload.get(peer, 0) > payload[flow]):
            granting.add(flow)
            if peer >= 0:
                grants[peer] = flow
    edges = []
    no_times = np.zeros(0, np.int64)
    for flow, (a, b) in rows.items():
        if flow in granting:
            continue
        part = messages[a:b]
        by = grants.get(flow)
        granted = no_times
        if by is not None:
            since, until = rows[by]
            granted = np.ascontiguousarray(messages["begun_ns"][since:until])
        edges.append(
            Edge(
                flow,
                int(flows["src"][flow]),
                int(flows["dst"][flow]),
                np.ascontiguousarray(part["begun_ns"]),
                np.ascontiguousarray(part["ended_ns"]),
                part["bytes"].astype(np.int64),
                granted,
                by,
            )
        )
    return edges


def rhythm_of(begun: Ints, ended: Ints, sizes: Ints | None) -> Rhythm | None:
    """The rhythm of messages or bursts, ascending by `begun`; None without one.

    sizes: payload of each, which must repeat itself; None if it may vary.
    """
    begun, ended = begun[:_MOST_MESSAGES], ended[:_MOST_MESSAGES]
    count = len(begun)
    if count < 2 * FEWEST_PERIODS:
        return None
    found: list[Rhythm] = []
    disturbed: list[Rhythm] = []
    for lag in _lags(begun, ended, count // FEWEST_PERIODS):
        periods = begun[lag:] - begun[:-lag]
        middle = float(np.median(periods))
        if middle < SHORTEST_PERIOD_NS or len(periods) <= lag:
            continue
        if sizes is not None and np.mean(sizes[lag:count] != sizes[: count - lag]) > 0.05:
            continue
        before, after = periods[:-lag], periods[lag:]
        changes = np.abs(after - before) / np.maximum(np.maximum(after, before), 1)
        irregularity = float(changes.mean())
        many = count >= _MANY_PERIODS * lag
        if irregularity < (_IRREGULAR if many else _IRREGULAR_FEW):
            found.append(Rhythm(lag, middle, irregularity))
        elif irregularity < _DISTURBED and (usual := float(np.median(changes))) < _USUALLY:
            disturbed.append(Rhythm(lag, middle, usual))
    found = found or disturbed
    if not found:
        return None
    best = min(found, key=lambda rhythm: rhythm.irregularity)
    few = count < 2 * FEWEST_PERIODS * best.messages
    parts = [  # several periods may be as regular as one
        rhythm
        for rhythm in found
        if (times := round(best.messages / rhythm.messages)) > 1
        and (
            rhythm.irregularity <= 2 * best.irregularity + 0.02
            or (few and _are_steps(begun, ended, best, times))
        )
        and abs(best.messages - times * rhythm.messages) <= _ABOUT * rhythm.messages
    ]
    best = min(parts, key=lambda rhythm: rhythm.messages, default=best)
    near = [r for r in found if abs(r.messages - best.messages) <= _ABOUT * best.messages]
    best = min(near, key=lambda rhythm: rhythm.irregularity)
    fitting = [  # to a capture of whole steps
        rhythm
        for rhythm in near
        if count % rhythm.messages == 0 and rhythm.irregularity <= best.irregularity + 0.02
    ]
    best = min(fitting, key=lambda rhythm: rhythm.irregularity, default=best)
    return None if _is_steady(begun, ended, best.messages) else best


def _are_steps(begun: Ints, ended: Ints, rhythm: Rhythm, times: int) -> bool:
    """Whether so many parts of a period each have the same long pause: steps, of which some are
    slower, as by another job whose steps meet them again and again."""
    each, rest = divmod(rhythm.messages, times)
    if rest:
        return False
    usual = _usual(begun[1:] - ended[:-1], rhythm.messages).reshape(times, each)
    longest = usual[:, int(np.argmax(usual.min(axis=0)))]
    return bool(longest.min() >= _LIKE_PAUSES * usual.max())


def _is_steady(begun: Ints, ended: Ints, messages: int) -> bool:
    """Whether all pauses of a period are alike: a stream, in which any part repeats itself."""
    usual = _usual(begun[1:] - ended[:-1], messages)
    return bool(messages > 1 and usual.max() < 2 * usual.min())


def _usual(values: Ints, each: int) -> Floats:
    """float64[each]: median of the values at each place of a period of so many."""
    periods, rest = divmod(len(values), each)
    whole = np.full((periods + 1, each), np.nan)
    whole.reshape(-1)[: len(values)] = values
    usual: Floats = np.nanmedian(whole[: periods + (rest > 0)], axis=0)
    return usual


def _lags(begun: Ints, ended: Ints, most: int) -> list[int]:
    """Numbers of messages after which the pauses look alike, by their autocorrelation, and those
    that fit to a capture of whole steps."""
    pauses = np.log(np.maximum(begun[1:] - ended[:-1], 1_000).astype(np.float64))
    pauses -= pauses.mean()
    if not pauses.any():
        return []
    size = 1 << (2 * len(pauses) - 1).bit_length()
    spectrum = np.fft.rfft(pauses, size)
    alike = np.fft.irfft(spectrum * spectrum.conj(), size)[: most + 1]
    alike /= np.arange(len(pauses), len(pauses) - most - 1, -1)
    best = 1 + np.argsort(alike[1:])[::-1][:_LAGS]
    divisors = [lag for lag in range(1, most + 1) if len(begun) % lag == 0]
    return sorted({*best.tolist(), *divisors})


def groups_of(edges: Sequence[Edge], unreliable: str | None = None) -> list[Group]:
    """The jobs, in the order of their first message.

    unreliable: why messages may be missing, so that no steps are looked for.
    """
    groups: list[Group] = []
    for component in components(edges):
        if unreliable is not None or not _may_be_job(component):
            reason = unreliable or _NO_JOB
            groups.append(Group(component, epochs=[_without_steps(component)], reason=reason))
            continue
        rest: list[Edge] = []
        reasons: list[str] = []
        for group in _divided(component):
            _find_steps(group)
            if group.reason is None and _is_doubtful(group):
                group.reason = _NO_JOB
            if group.reason is None:
                groups.append(group)
            else:
                rest += group.edges
                reasons.append(group.reason)
        for part in components(rest):
            groups.append(Group(part, epochs=[_without_steps(part)], reason=reasons[0]))
    return sorted(_joined_parts(groups), key=lambda group: _span(group.edges)[0])


def _joined_parts(groups: list[Group]) -> list[Group]:
    """Parts of one job that the taps do not show as connected, or its rails: their steps end at
    the same times, and the same steps last longer."""
    joined: list[Group] = []
    for group in groups:
        whole = next((other for other in joined if _in_step(other, group)), None)
        if whole is None:
            joined.append(group)
            continue
        whole.edges += group.edges
        whole.clocks += group.clocks
        whole.epochs = []
        _find_steps(whole)
    return joined


def _in_step(group: Group, other: Group) -> bool:
    if group.reason is not None or other.reason is not None:
        return False
    ends, others = (_step_ends(one) for one in (group, other))
    if min(len(ends), len(others)) < _FEWEST_TOGETHER or group.rhythm is None:
        return False
    after = np.clip(np.searchsorted(others, ends), 1, len(others) - 1)
    nearest = after - (ends - others[after - 1] <= others[after] - ends)
    nearest, first = np.unique(nearest, return_index=True)
    ends, others = ends[first], others[nearest]
    if len(ends) < _FEWEST_TOGETHER:
        return False
    apart = (ends - others).astype(np.float64)
    sway = np.abs(apart - np.median(apart)).max() / group.rhythm.period_ns
    lasting, lasting_others = np.diff(ends), np.diff(others)
    if sway > _SWAY_OF_PARTS or min(lasting.std(), lasting_others.std()) == 0:
        return False
    alike = np.corrcoef(lasting, lasting_others)[0, 1]
    if sway > _TOGETHER:
        return bool(alike >= _SAME_STEPS and _complete_each_other(group, other))
    return bool(alike >= _LIKE_EACH_OTHER)


def _complete_each_other(group: Group, other: Group) -> bool:
    """Whether two groups share addresses and connect different pairs of them, as the collectives
    of one job do. Two jobs on the same hosts connect the same pairs."""
    pairs, others = ({(edge.src, edge.dst) for edge in one.edges} for one in (group, other))
    share = not set(group.addresses).isdisjoint(other.addresses)
    same = len(pairs & others)
    return share and 2 * same <= max(len(pairs), len(others)) and pairs != others


def _step_ends(group: Group) -> Ints:
    ends: Ints = np.concatenate([epoch.bounds_ns[1:-1] for epoch in group.epochs])
    return ends


def _is_doubtful(group: Group) -> bool:
    """Whether nothing but its rhythm says that this is a training job: any application that sends
    at a steady rate has one."""
    if any(edge.grants is not None for edge in group.edges):
        return False
    return group.boundary == "convention" or not _may_be_job(group.edges)


def _may_be_job(edges: Sequence[Edge]) -> bool:
    """Whether some data is granted as by NCCL, or the pairs of addresses are those of a
    collective."""
    if any(edge.grants is not None for edge in edges):
        return True
    pairs = {(edge.src, edge.dst) for edge in edges}
    if len({end for pair in pairs for end in pair}) < 3:
        return False
    return shape_of(pairs)[0] != "unknown"


def shape_of(
    pairs: Iterable[tuple[int, int]], sizes_vary: bool = False
) -> tuple[Pattern, list[int]]:
    """The pattern of (sender, receiver) pairs that are connected, and the addresses in order.

    Rings over several channels may use all pairs; an exchange has messages of sizes that vary.
    """
    pairs = sorted(set(pairs))
    following: dict[int, list[int]] = defaultdict(list)
    for src, dst in pairs:
        following[src].append(dst)
    addresses = sorted({end for pair in pairs for end in pair})
    count, both = len(addresses), set(pairs) == {(dst, src) for src, dst in pairs}
    each = len(pairs) // count
    regular = all(len(following[a]) == each for a in addresses) and Counter(
        dst for _, dst in pairs
    ) == dict.fromkeys(addresses, each)
    all_pairs = count > 2 and len(pairs) == count * (count - 1)
    if all_pairs and sizes_vary:
        return "exchange", addresses
    if count > 1 and regular and (order := _round(following, addresses)):
        return "ring", order
    if both and len(pairs) == 2 * (count - 1) and count >= 3:
        degrees = Counter(src for src, _ in pairs)
        return ("pairs" if max(degrees.values()) <= 2 else "tree"), addresses
    if count == 2:
        return "pairs", addresses
    return "unknown", addresses


_MOST_TRIES: Final = 10_000


def _round(following: dict[int, list[int]], addresses: Sequence[int]) -> list[int]:
    """All addresses in an order in which each sends to the next one; empty if none is found."""
    order, tries = [addresses[0]], 0
    left = [iter(following[order[0]])]
    seen = {order[0]}
    while left and tries < _MOST_TRIES:
        tries += 1
        at = next(left[-1], None)
        if at is None:
            left.pop()
            seen.discard(order.pop())
        elif at not in seen:
            order.append(at)
            seen.add(at)
            left.append(iter(following[at]))
            if len(order) == len(addresses) and order[0] in following[at]:
                return order
    return []


def components(edges: Sequence[Edge]) -> list[list[Edge]]:
    """Edges that are joined by common addresses."""
    parent: dict[int, int] = {}

    def root(address: int) -> int:
        while parent.setdefault(address, address) != address:
            parent[address] = address = parent[parent[address]]
        return address

    for edge in edges:
        parent[root(edge.src)] = root(edge.dst)
    joined: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        joined[root(edge.src)].append(edge)
    return list(joined.values())


class Bundle(NamedTuple):
    """Edges that carry data between the same addresses in turn: queue pairs of one connection, or
    channels."""

    whole: Edge
    """The messages of all of them."""
    edges: list[Edge]


def bundles_of(edges: Sequence[Edge]) -> list[Bundle]:
    """Edges of the same addresses that carry as many messages of the same size at the same time."""
    by_pair: dict[tuple[int, int], list[list[Edge]]] = defaultdict(list)
    for edge in sorted(edges, key=lambda edge: (len(edge.begun_ns), edge.flow)):
        bundles = by_pair[edge.src, edge.dst]
        if bundles and _takes_turns(bundles[-1][0], edge):
            bundles[-1].append(edge)
        else:
            bundles.append([edge])
    return [Bundle(_merged(some), some) for bundles in by_pair.values() for some in bundles]


def _takes_turns(edge: Edge, other: Edge) -> bool:
    count, more = len(edge.begun_ns), len(other.begun_ns)
    size, larger = sorted((float(np.median(edge.bytes)), float(np.median(other.bytes))))
    together = min(edge.begun_ns[-1], other.begun_ns[-1]) - max(edge.begun_ns[0], other.begun_ns[0])
    whole = max(edge.begun_ns[-1], other.begun_ns[-1]) - min(edge.begun_ns[0], other.begun_ns[0])
    alike = abs(more - count) <= max(2, 0.1 * count) and larger <= 1.5 * max(size, 64)
    return bool(alike and together >= 0.8 * whole)


def _merged(edges: Sequence[Edge]) -> Edge:
    if len(edges) == 1:
        return edges[0]
    begun = np.concatenate([edge.begun_ns for edge in edges])
    order = np.argsort(begun, kind="stable")
    return edges[0]._replace(
        begun_ns=begun[order],
        ended_ns=np.concatenate([edge.ended_ns for edge in edges])[order],
        bytes=np.concatenate([edge.bytes for edge in edges])[order],
        granted_ns=np.sort(np.concatenate([edge.granted_ns for edge in edges])),
    )


def _divided(edges: list[Edge]) -> list[Group]:
    """The jobs of edges that share addresses: those of another rhythm are another job."""
    bundles = {bundle.whole.flow: bundle for bundle in bundles_of(edges)}
    own = {
        flow: rhythm
        for flow, (edge, _) in bundles.items()
        if (rhythm := rhythm_of(edge.begun_ns, edge.ended_ns, edge.bytes)) is not None
    }
    left = dict(bundles)
    groups: list[Group] = []
    for flow in sorted(own, key=lambda flow: (own[flow].irregularity, -len(bundles[flow].edges))):
        if flow not in left:
            continue
        clock, rhythm = bundles[flow].whole, own[flow]
        starts = _starts(clock, rhythm)
        members = [
            bundle.whole
            for bundle in left.values()
            if bundle.whole is clock
            or _keeps_step(bundle.whole, own.get(bundle.whole.flow), starts, rhythm)
        ]
        group = _group(members, own, rhythm, clock)
        group.edges = [edge for whole in members for edge in left.pop(whole.flow).edges]
        groups.append(group)
    return _joined_epochs(_with_rest(groups, list(left.values())))


def _group(members: list[Edge], own: Mapping[int, Rhythm], rhythm: Rhythm, clock: Edge) -> Group:
    """A job. Its clocks are the edges that pause longest in a step: those of a collective that
    comes once, at the end of a step, where the job has such a collective."""
    regular = [(clock, rhythm)]
    for edge in members:
        other = own.get(edge.flow)
        if other is None or edge is clock:
            continue
        same = abs(other.period_ns / rhythm.period_ns - 1) <= _SAME_PERIOD
        if same and other.irregularity <= 2 * rhythm.irregularity + 0.02:
            regular.append((edge, other))
    pauses = [_longest_pause(edge, r)[1] / r.period_ns for edge, r in regular]
    best = sorted(range(len(regular)), key=lambda at: -pauses[at])
    chosen = [regular[at] for at in best if pauses[at] >= pauses[best[0]] - _LONGER]
    return Group(members, rhythm, chosen[:_MOST_CLOCKS])


def _longest_pause(edge: Edge, rhythm: Rhythm) -> tuple[int, float]:
    """After how many messages of a period the longest of its usual pauses is, and that pause."""
    usual = _usual(edge.begun_ns[1:] - edge.ended_ns[:-1], rhythm.messages)
    longest = int(np.argmax(usual))
    return (longest + 1) % rhythm.messages, float(usual[longest])


def _starts(edge: Edge, rhythm: Rhythm) -> Ints:
    """When each period of an edge begins: in the middle of the longest of its usual pauses."""
    pauses = edge.begun_ns[1:] - edge.ended_ns[:-1]
    begins = np.arange(_longest_pause(edge, rhythm)[0], len(edge.begun_ns), rhythm.messages)
    begins = begins[begins > 0]
    starts: Ints = edge.begun_ns[begins] - pauses[begins - 1] // 2
    return starts


def _keeps_step(edge: Edge, own: Rhythm | None, starts: Ints, rhythm: Rhythm) -> bool:
    """Whether an edge advances by one period of its own in each period of another one, and its
    periods last as long at the same time."""
    half = rhythm.period_ns / 2
    if not _lives_as_long(edge, starts, rhythm):
        return False
    inside = (starts >= edge.begun_ns[0] - half) & (starts <= edge.ended_ns[-1] + half)
    if inside.sum() < min(FEWEST_PERIODS, len(starts)):
        return False
    sent = np.searchsorted(edge.begun_ns, starts[inside])
    counts = np.diff(sent)
    each = round(float(np.median(counts)))
    if own is not None and np.mean(counts == each) < 0.5:
        each = own.messages  # the other one's steps begin while this one sends
    if each < 1:
        return False
    periods = np.arange(len(sent))
    ahead = sent / each - periods
    if np.ptp(ahead) > _SWAY:
        return False
    in_steps = Rhythm(each, rhythm.period_ns, 0.0)
    if not (_lasts_as_long(edge, in_steps, starts) or _keeps_place(edge, in_steps, starts)):
        return False
    lasting = 0.0 if own is None else own.period_ns * each / own.messages
    apart = abs(lasting / rhythm.period_ns - 1)
    if apart * len(periods) < _DRIFT:
        return True
    slope, offset = np.polyfit(periods, ahead, 1)
    drift = abs(float(slope)) * len(periods)
    sway = float((ahead - offset - slope * periods).std())
    return drift < _DRIFT or drift < 4 * sway


def _lives_as_long(edge: Edge, starts: Ints, rhythm: Rhythm) -> bool:
    """Whether an edge begins and ends about when another one does: flows of one job begin in its
    first step and end in its last one."""
    near = _LIFE_PERIODS * rhythm.period_ns
    begins = abs(int(edge.begun_ns[0]) - int(starts[0])) if len(starts) else 0
    ends = abs(int(edge.ended_ns[-1]) - int(starts[-1])) if len(starts) else 0
    return begins <= near and ends <= near


def _lasts_as_long(edge: Edge, rhythm: Rhythm, starts: Ints) -> bool:
    """Whether the periods of an edge last as long as those that begin at `starts`, at the same
    time; most of them, because slow steps stretch at different places."""
    if len(edge.begun_ns) <= rhythm.messages:
        return True
    begins = _starts(edge, rhythm).astype(np.float64)
    steps, lasting = begins[:-1], np.diff(begins)
    numbers = np.arange(len(starts))
    at = np.interp(steps, starts, numbers, left=np.nan, right=np.nan)
    until = np.interp(at + 1, numbers, starts.astype(np.float64), right=np.nan)
    apart = np.abs(until - steps - lasting) / rhythm.period_ns
    known = apart[~np.isnan(apart)]
    return len(known) < 2 or float(np.median(known)) < _SAME_PERIOD


def _keeps_place(edge: Edge, rhythm: Rhythm, starts: Ints) -> bool:
    """Whether the periods of an edge begin at the same place of most of those that begin at
    `starts`: slow steps move it, and it comes back."""
    begins = _starts(edge, rhythm)
    if len(begins) < FEWEST_PERIODS or len(starts) < FEWEST_PERIODS:
        return False
    after = np.clip(np.searchsorted(begins, starts), 1, len(begins) - 1)
    nearest = after - (starts - begins[after - 1] <= begins[after] - starts)
    apart = (begins[nearest] - starts) / rhythm.period_ns
    return bool(np.mean(np.abs(apart - np.median(apart)) < _SAME_PERIOD) > _MOST_PLACES)


def _joined_epochs(groups: list[Group]) -> list[Group]:
    """Groups of the same addresses that never overlap in time are epochs of one job."""
    joined: list[Group] = []
    for group in sorted(groups, key=lambda group: _span(group.edges)[0]):
        begun, _ = _span(group.edges)
        for earlier in joined:
            same = set(earlier.addresses) & set(group.addresses)
            alike = 2 * len(same) > max(len(earlier.addresses), len(group.addresses))
            if alike and _span(earlier.edges)[1] <= begun:
                earlier.edges += group.edges
                break
        else:
            joined.append(group)
    return joined


def _with_rest(groups: list[Group], rest: list[Bundle]) -> list[Group]:
    """Edges without a rhythm, such as exchanges of sizes that vary: each is of the job of its
    addresses in whose steps it is active at the same times, or of the only one of both its
    addresses that is granted data, too, else of a job of its own."""
    left: list[Edge] = []
    for edge, members in rest:
        near = [g for g in groups if {edge.src, edge.dst} & set(g.addresses) and g.clocks]
        spread = [_spread(edge, group) for group in near]
        of_both = [g for g in near if {edge.src, edge.dst} <= set(g.addresses)]
        if spread and min(spread) < _SPREAD:
            near[int(np.argmin(spread))].edges += members
        elif len(of_both) == 1 and edge.grants is not None and _is_granted(of_both[0], edge):
            of_both[0].edges += members
        else:
            left += members
    return groups + [Group(component) for component in components(left)]


def _is_granted(group: Group, edge: Edge) -> bool:
    """Whether the data of a job is granted, and the edge lives as long as the job."""
    clock, rhythm = group.clocks[0]
    starts = _starts(clock, rhythm)
    return clock.grants is not None and _lives_as_long(edge, starts, rhythm)


def _spread(edge: Edge, group: Group) -> float:
    """How evenly the messages of an edge are spread over the steps of a job: 0 to 1."""
    clock, rhythm = group.clocks[0]
    starts = _starts(clock, rhythm)
    if not len(starts) or not _lives_as_long(edge, starts, rhythm):
        return 1.0
    at = np.interp(edge.begun_ns, starts, np.arange(len(starts)), left=np.nan, right=np.nan)
    known = at[~np.isnan(at)]
    if len(known) < len(at) / 2:
        return 1.0
    shares = np.bincount((known % 1 * _BINS).astype(np.int64), minlength=_BINS) / len(known)
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum())) / _BINS


def _span(edges: Iterable[Edge]) -> tuple[int, int]:
    edges = list(edges)
    return min(int(e.begun_ns[0]) for e in edges), max(int(e.ended_ns.max()) for e in edges)


class Idle(NamedTuple):
    """Times in which no data of a job is in flight."""

    from_ns: Ints
    until_ns: Ints

    @property
    def lasting_ns(self) -> Ints:
        """int64[pauses]."""
        lasting: Ints = self.until_ns - self.from_ns
        return lasting


def idle_times(edges: Sequence[Edge], least_ns: int = 1) -> Idle:
    """Pauses of at least this length between the messages of all edges, ascending."""
    begun = np.concatenate([edge.begun_ns for edge in edges])
    ended = np.concatenate([edge.ended_ns for edge in edges])
    order = np.argsort(begun, kind="stable")
    begun, ended = begun[order], np.maximum.accumulate(ended[order])
    pauses = np.flatnonzero(begun[1:] - ended[:-1] >= least_ns)
    return Idle(ended[:-1][pauses], begun[1:][pauses])


def _find_steps(group: Group) -> None:
    """Set the epochs of a job and the bounds of its steps, or the reason why it has none."""
    parts = _epochs_of(group.edges, group.rhythm)
    if group.clocks:
        clocks = [_clocks_of(part, group.clocks) for part in parts]
    else:
        clocks = [_bursts(part) for part in parts]
        group.rhythm = next((part[0].rhythm for part in clocks if part), None)
    if group.rhythm is None:
        group.epochs = [_without_steps(part) for part in parts]
        group.reason = _no_rhythm(group.edges)
        return
    boundaries = [
        _boundary(known, part) if known else None for known, part in zip(clocks, parts, strict=True)
    ]
    known = [found for found in boundaries if found is not None and len(found.times)]
    group.boundary = known[0].kind if known else "convention"
    for part, found in zip(parts, boundaries, strict=True):
        if found is None:
            group.epochs.append(_without_steps(part))
        else:
            group.epochs.append(_epoch(part, found))
    if group.boundary == "convention" and group.rhythm.period_ns < _LEAST_CONVENTION_NS:
        group.reason = "no pause that all its queue pairs share"
    elif (periods := sum(epoch.known_durations for epoch in group.epochs)) < FEWEST_PERIODS:
        group.reason = "fewer than three periods in the capture"
    elif periods < _MANY_PERIODS and _usual_step(group.epochs) < _LEAST_OF_FEW_NS:
        group.reason = "too few periods to tell short steps from the collectives of one step"


def _usual_step(epochs: Sequence[Epoch]) -> float:
    return float(np.median(np.concatenate([np.diff(epoch.bounds_ns) for epoch in epochs])))


def _no_rhythm(edges: Sequence[Edge]) -> str:
    messages = sum(len(edge.begun_ns) for edge in edges)
    if messages < 2 * FEWEST_PERIODS:
        return "too few messages"
    return "its messages do not repeat in a regular period, or fewer than three times"


def _epochs_of(edges: Sequence[Edge], rhythm: Rhythm | None) -> list[list[Edge]]:
    """Edges by the times in which they are used, and cut where all of them are silent."""
    parts: list[list[Edge]] = []
    ended = 0
    for edge in sorted(edges, key=lambda edge: int(edge.begun_ns[0])):
        if not parts or int(edge.begun_ns[0]) > ended:
            parts.append([])
        parts[-1].append(edge)
        ended = max(ended, int(edge.ended_ns.max()))
    if rhythm is None:
        return parts
    cut: list[list[Edge]] = []
    for part in parts:
        silence = idle_times(part, round(SILENT_PERIODS * rhythm.period_ns))
        limits = [0, *silence.until_ns.tolist(), 1 << 62]
        for since, until in pairwise(limits):
            pieces = [_between(edge, since, until) for edge in part]
            cut.append([edge for edge in pieces if len(edge.begun_ns)])
    return cut


def _between(edge: Edge, since: int, until: int) -> Edge:
    """The messages of an edge that begin in this time, and its grants since then."""
    a, b = np.searchsorted(edge.begun_ns, (since, until))
    c, d = np.searchsorted(edge.granted_ns, (since, until))
    return edge._replace(
        begun_ns=edge.begun_ns[a:b],
        ended_ns=edge.ended_ns[a:b],
        bytes=edge.bytes[a:b],
        granted_ns=edge.granted_ns[c:d],
    )


class _Clock(NamedTuple):
    """What counts the steps of an epoch: messages of one of its edges, or bursts of all."""

    begun_ns: Ints
    bytes: Ints | None
    rhythm: Rhythm
    idle: Idle


def _clocks_of(edges: Sequence[Edge], clocks: Sequence[tuple[Edge, Rhythm]]) -> list[_Clock]:
    """The clocks of an epoch: the same edges, or those of the same hosts after a restart."""
    found, idle = [], idle_times(edges)
    by_pair: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    for bundle in bundles_of(edges):
        by_pair[bundle.whole.src, bundle.whole.dst].append(bundle.whole)
    for clock, rhythm in clocks:
        size = float(np.median(clock.bytes))
        alike = by_pair[clock.src, clock.dst]
        same = [edge for edge in alike if edge.flow == clock.flow] or alike
        if same:
            edge = min(same, key=lambda edge: abs(float(np.median(edge.bytes)) - size))
            found.append(_Clock(edge.begun_ns, edge.bytes, rhythm, idle))
    return found


_LEAST_PAUSES_NS: Final = tuple(20_000 << shift for shift in range(0, 12, 2))


def _bursts(edges: Sequence[Edge]) -> list[_Clock]:
    """The bursts of all edges as a clock, where no edge repeats itself exactly."""
    best: _Clock | None = None
    for least in _LEAST_PAUSES_NS:
        idle = idle_times(edges, least)
        if len(idle.from_ns) < 2 * FEWEST_PERIODS:
            break
        begun, ended = idle.until_ns[:-1], idle.from_ns[1:]
        rhythm = rhythm_of(begun, ended, None)
        if rhythm is None:
            continue
        if best is None or rhythm.irregularity < best.rhythm.irregularity:
            best = _Clock(begun, None, rhythm, idle)
    return [] if best is None else [best]


class _Bounds(NamedTuple):
    kind: Boundary
    times: Ints
    pauses: Ints


class _Candidate(NamedTuple):
    """A pause at which steps may begin."""

    fits: bool
    usual_ns: float
    sway: float
    """Usual difference of a step to the next one, as a share of the period: pauses of several
    kinds in turn are no boundary."""
    times: Ints


def _sway(times: Ints, period_ns: float) -> float:
    changes = np.abs(np.diff(times, 2))
    return float(np.median(changes)) / period_ns if len(changes) else np.inf


def _boundary(clocks: Sequence[_Clock], edges: Sequence[Edge]) -> _Bounds:
    """Where steps begin: int64[steps + 1] ns, each at the end of a pause of the whole job."""
    idle, period = clocks[0].idle, clocks[0].rhythm.period_ns
    within = idle.until_ns[idle.lasting_ns >= _LEAST_PAUSE * period]
    found: list[_Candidate] = []
    for clock in clocks:
        m, marker = clock.rhythm.messages, _after_marker(clock)
        steps = max(1, len(clock.begun_ns) // m)
        for pauses in (_first_pauses(clock), _longest_pauses(clock)):
            phase = pauses.sent % m
            for at in np.unique(phase).tolist():
                lasting = pauses.lasting_ns[phase == at]
                usual = float(np.median(lasting))
                if len(lasting) < _MOST_OF * (steps - 1) or usual < LEAST_IDLE * period:
                    continue
                times = _walk(_known(pauses, clock, usual), m, at)
                if at == marker:
                    return _Bounds("marker", times, within)
                found.append(_Candidate(_fits(times, edges), usual, _sway(times, period), times))
    if not found:
        return _Bounds("convention", clocks[0].begun_ns[:: clocks[0].rhythm.messages], within)
    steadiest = min(one.sway for one in found)
    found = [one for one in found if one.sway <= 2 * steadiest + _LEAST_SWAY]
    longest = max(one.usual_ns for one in found)
    best = max(
        found, key=lambda one: (one.fits and one.usual_ns >= _LEAST_OF * longest, one.usual_ns)
    )
    return _Bounds("longest_idle", best.times, within)


def _fits(bounds: Ints, edges: Sequence[Edge]) -> bool:
    """Whether the epoch begins and ends with a whole step."""
    epoch = _epoch(edges, _Bounds("longest_idle", bounds, bounds))
    return epoch.starts_whole and epoch.rest_from_ns is None


class _Pauses(NamedTuple):
    """Pauses of a job by the number of messages of its clock before them, ascending."""

    sent: Ints
    until_ns: Ints
    lasting_ns: Ints


def _longest_pauses(clock: _Clock) -> _Pauses:
    """The longest pause between each two messages of the clock."""
    idle = clock.idle
    sent = np.searchsorted(clock.begun_ns, idle.until_ns)
    return _one_each(sent, idle, np.lexsort((-idle.lasting_ns, sent)))


def _first_pauses(clock: _Clock) -> _Pauses:
    """The first long pause after each message of the clock: other edges send after it."""
    idle = clock.idle
    long = (idle.from_ns > clock.begun_ns[0]) & (
        idle.lasting_ns >= LEAST_IDLE * clock.rhythm.period_ns
    )
    idle = Idle(idle.from_ns[long], idle.until_ns[long])
    sent = np.searchsorted(clock.begun_ns, idle.until_ns)
    return _one_each(sent, idle, np.argsort(sent, kind="stable"))


def _one_each(sent: Ints, idle: Idle, order: Ints) -> _Pauses:
    """The first pause in this order for each number of messages."""
    numbers, first = np.unique(sent[order], return_index=True)
    chosen = order[first]
    return _Pauses(numbers, idle.until_ns[chosen], idle.lasting_ns[chosen])


def _known(pauses: _Pauses, clock: _Clock, usual_ns: float) -> _Pauses:
    """Without those after the clock's last message that are shorter than the usual boundary: they
    lie within its last step."""
    known = (pauses.sent < len(clock.begun_ns)) | (pauses.lasting_ns >= _LIKE * usual_ns)
    return _Pauses(*(values[known] for values in pauses))


def _after_marker(clock: _Clock) -> int | None:
    """The number of messages, modulo the rhythm, after a single run of very small ones."""
    m = clock.rhythm.messages
    if clock.bytes is None or len(clock.bytes) < m:
        return None
    sizes = _usual(clock.bytes, m)
    small = sizes * _MARKER < sizes.max()
    ends = np.flatnonzero(small & ~np.roll(small, -1))
    if len(ends) != 1 or 2 * small.sum() >= m:
        return None
    return int(ends[0] + 1) % m


def _walk(pauses: _Pauses, m: int, phase: int) -> Ints:
    """The end of one pause per step; a message that is missing in the capture shifts the rest."""
    count, near = pauses.sent, max(1, m // 20)
    at = int(np.flatnonzero(count % m == phase)[0])
    bounds = [at]
    while True:
        wanted = count[at] + m
        since, until = np.searchsorted(count, (wanted - near, wanted + near + 1))
        ahead = np.arange(max(since, at + 1), until)
        if not len(ahead):
            return pauses.until_ns[bounds]
        miss = np.abs(count[ahead] - wanted)
        at = int(ahead[np.lexsort((-pauses.lasting_ns[ahead], miss))[0]])
        bounds.append(at)


def _without_steps(edges: Sequence[Edge]) -> Epoch:
    nothing = np.zeros(0, np.int64)
    return Epoch(edges, nothing, False, None, nothing)


def _epoch(edges: Sequence[Edge], found: _Bounds) -> Epoch:
    """Add what is before the first and after the last bound, if it is a whole step."""
    bounds = found.times
    first, last = _span(edges)
    limits = np.concatenate([np.array([first]), bounds, np.array([last + 1])])
    counts = _messages_between(_regular(edges, bounds) or edges, limits)
    usual = float(np.median(counts[1:-1])) if len(counts) > 2 else float(counts.max())
    starts_whole = bool(counts[0] >= usual * _WHOLE)
    ends_whole = bool(counts[-1] >= usual * _WHOLE)
    before = np.array([first] if starts_whole else [], np.int64)
    after = np.array([last + 1] if ends_whole else [], np.int64)
    return Epoch(
        edges,
        np.concatenate([before, bounds, after]),
        starts_whole,
        None if ends_whole or not counts[-1] else int(bounds[-1]),
        found.pauses,
    )


def _regular(edges: Sequence[Edge], bounds: Ints) -> list[Edge]:
    """The edges that send the same number of messages in nearly all steps."""
    regular = []
    for edge in edges:
        counts = np.diff(np.searchsorted(edge.begun_ns, bounds))
        if (
            len(counts)
            and np.median(counts) > 0
            and np.mean(counts == np.median(counts)) >= _MOST_OF
        ):
            regular.append(edge)
    return regular


def _messages_between(edges: Sequence[Edge], bounds: Ints) -> Ints:
    between: Ints = np.sum([np.diff(np.searchsorted(e.begun_ns, bounds)) for e in edges], axis=0)
    return between
