"""Ranks of a job: sums of each pair, arrival in collectives, and the steps of rings.

docs/ranks.md defines every number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec.structs import replace

from ...kernels.kernel import Ints, Records
from ..measures.messages import MessageTimes
from ..results.analysis import CommunicatorTiming, RankPair, Ranks, RankTiming
from ..results.base import Quantiles, facts_of
from ..results.flow import Connection, Flow

SILENCE_NS = 1_000_000
"""If no message of a communicator begins or is in flight for this time, a collective may end."""
SMALL = 16
"""A queue pair whose requests have less than one 16th of the payload of the other direction makes
room for that data (clear to send) and carries none of its own."""
_FEWEST = 3

_Pair: TypeAlias = tuple[str, int, int]


class _Link(NamedTuple):
    """A flow between two ranks."""

    flow: int
    sender: int
    receiver: int
    is_data: bool


def ranks_of(flows: Sequence[Flow], times: MessageTimes | None) -> Ranks | None:
    """None if no flow has two known ranks."""
    by_pair: dict[_Pair, list[Flow]] = defaultdict(list)
    links: dict[str, list[_Link]] = defaultdict(list)
    payload = {(flow.connection, flow.src): flow.payload_bytes for flow in flows}
    for flow in flows:
        owner = flow.owner
        if owner is None or owner.comm is None or not flow.data_packets:
            continue
        sender, receiver = owner.ranks
        if sender is None or receiver is None:
            continue
        by_pair[owner.comm, sender, receiver].append(flow)
        if flow.request_packets:
            back = 0 if flow.connection is None else payload.get((flow.connection, flow.dst), 0)
            is_data = flow.payload_bytes * SMALL >= back
            links[owner.comm].append(_Link(flow.id, sender, receiver, is_data))
    if not by_pair:
        return None
    pairs = sorted((_pair(*pair, members) for pair, members in by_pair.items()), key=_badness)
    timing: list[CommunicatorTiming] = []
    if times is not None:
        messages = times.messages()
        timing = [_timing(comm, members, messages, times.full) for comm, members in links.items()]
        timing.sort(
            key=lambda communicator: (
                -max((rank.others_wait_ns for rank in communicator.ranks), default=-1)
            )
        )
    return Ranks(pairs=pairs, timing=timing)


def with_ranks(connections: Sequence[Connection], flows: Sequence[Flow]) -> list[Connection]:
    """The connections with the ranks at both ends, as the owners of their flows name them."""
    by_id = {flow.id: (flow.src, flow.owner.ranks) for flow in flows if flow.owner is not None}
    named = []
    for connection in connections:
        known: dict[str, int] = {}
        for src, ranks in (by_id[number] for number in connection.flows if number in by_id):
            ends = ("a_rank", "b_rank") if src == connection.a else ("b_rank", "a_rank")
            known |= {end: rank for end, rank in zip(ends, ranks, strict=True) if rank is not None}
        named.append(replace(connection, **known) if known else connection)
    return named


def _pair(comm: str, sender: int, receiver: int, flows: Sequence[Flow]) -> RankPair:
    done = [flow.message_statistics.completion_ns for flow in flows]
    known = [times for times in done if times is not None]
    sums: dict[str, Any] = {
        fact.name: _sum(getattr(flow, fact.name) for flow in flows)
        for fact in facts_of(Flow)
        if fact.name in RankPair.__struct_fields__
    }
    return RankPair(
        comm=comm,
        sender=sender,
        receiver=receiver,
        flows=len(flows),
        lost_between_taps=sum(flow.lost_between_taps or 0 for flow in flows),
        completion_p50_ns=max((times.p50 for times in known), default=None),
        completion_max_ns=max((times.max for times in known), default=None),
        **sums,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _badness(pair: RankPair) -> tuple[object, ...]:
    gone = (pair.missing_packets or 0) + (pair.recovered_packets or 0) + pair.lost_between_taps
    name = pair.comm, pair.sender, pair.receiver
    return -gone, -(pair.retransmitted_packets or 0), -pair.wire_bytes, name


def _timing(comm: str, links: Sequence[_Link], messages: Records, full: bool) -> CommunicatorTiming:
    """Arrivals and ring steps of one communicator."""
    why = ["too many messages to keep: later messages are not counted"] if full else []
    numbers = np.array([link.flow for link in links])
    sent_messages = messages[np.isin(messages["flow"], numbers)]
    sent_messages = sent_messages[np.argsort(sent_messages["begun_ns"], kind="stable")]
    sender_of = {link.flow: link.sender for link in links}
    senders = np.array([sender_of[flow] for flow in sent_messages["flow"].tolist()], np.int64)
    everyone = sorted({rank for link in links for rank in (link.sender, link.receiver)})
    data = [link for link in links if link.is_data]
    rank_pairs = {(link.sender, link.receiver) for link in data}
    is_ring = _is_ring(rank_pairs, everyone)
    steps_of = {}
    if is_ring and len(data) == len(everyone):
        into = {link.receiver: link.flow for link in data}
        steps_of = {link.sender: (into[link.sender], link.flow) for link in data}
    arrivals: list[Ints] = []
    steps = {rank: np.zeros(3, np.int64) for rank in everyone}
    early: set[int] = set()
    rounds, partial = _rounds(sent_messages, [link.flow for link in data])
    for begin, end in rounds:
        first = _first(sent_messages["begun_ns"][begin:end], senders[begin:end], everyone)
        if first is None:
            partial += 1
            continue
        arrivals.append(first)
        for rank, (received, sent) in steps_of.items():
            more_steps = _steps(sent_messages[begin:end], received, sent)
            if more_steps is None:
                early.add(rank)
            else:
                steps[rank] += more_steps
    if not is_ring and len(rank_pairs) != len(everyone) * (len(everyone) - 1):
        arrivals = []
        why.append(
            f"only rank {data[0].sender} sends data"
            if len({link.sender for link in data}) == 1
            else "neither a ring nor all to all: the first message of a rank may wait for others,"
            " so it does not show the arrival"
        )
    elif not arrivals:
        why.append("the flows of the ring never carry equal numbers of messages before a silence")
    if is_ring and not steps_of:
        why.append(
            "steps: several queue pairs connect two ranks: which one forwards a message is unknown"
        )
    if early:
        why.append(
            f"steps: rank {min(early)} sends before it receives: its sends do not follow receives"
        )
    timed = _timed(everyone, arrivals, steps if steps_of and not early else None)
    return CommunicatorTiming(
        comm=comm,
        collectives=len(arrivals),
        partial=partial,
        ranks=timed,
        slowest=_slowest(timed, len(arrivals)),
        waits_least=_waits_least(timed),
        why=why,
    )


def _rounds(messages: Records, data: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Collectives, as first and last row of messages sorted by begin, and the number of partial
    ones at both ends.

    Collectives end with silences after which all flows with data have carried equally many
    messages: in other silences ranks wait. In a capture that begins within a collective the flows
    differ by what it misses of that: as in the silences that are longest in the median.
    """
    if not len(messages):
        return [], 0
    busy_until = np.maximum.accumulate(messages["ended_ns"])
    silence = messages["begun_ns"][1:] - busy_until[:-1]
    ends = np.flatnonzero(silence >= SILENCE_NS) + 1
    stops = [*ends.tolist(), len(messages)]
    lengths = [*silence[ends - 1].tolist(), 0]
    place = {flow: at for at, flow in enumerate(data)}
    of_data = np.array([place.get(flow, len(data)) for flow in messages["flow"].tolist()])
    counts = np.zeros(len(data), np.int64)
    at_silence: dict[bytes, list[int]] = defaultdict(list)
    for number, (first, stop) in enumerate(pairwise([0, *stops])):
        counts += np.bincount(of_data[first:stop], minlength=len(data) + 1)[:-1]
        if counts.any():
            at_silence[(counts - counts.min()).tobytes()].append(number)
    complete = at_silence.get(np.zeros(len(data), np.int64).tobytes())
    if complete:
        chosen, begun = [stops[number] for number in complete], [0]
    elif at_silence:
        longest = max(
            at_silence.values(), key=lambda numbers: np.median([lengths[n] for n in numbers])
        )
        chosen, begun = [stops[number] for number in longest], []
    else:
        return [], 1
    edges = [*begun, *chosen]
    partial = (edges[0] > 0) + (edges[-1] < len(messages))
    return list(pairwise(edges)), partial


def _first(begun: Ints, senders: Ints, everyone: Sequence[int]) -> Ints | None:
    """The time of the first message of every rank; None if one sends nothing."""
    ranks, at = np.unique(senders, return_index=True)
    return begun[at] if ranks.tolist() == list(everyone) else None


def _is_ring(rank_pairs: set[tuple[int, int]], everyone: Sequence[int]) -> bool:
    """Whether each rank sends to one other, and all are in one circle."""
    after = dict(rank_pairs)
    at, seen = everyone[0], {everyone[0]}
    while (at := after.get(at, everyone[0])) not in seen:
        seen.add(at)
    return len(rank_pairs) == len(after) == len(seen) == len(everyone) and at == everyone[0]


def _steps(messages: Records, received: int, sent: int) -> Ints | None:
    """Number, waiting and holding of the steps of one rank in one collective.

    Send i follows receive i - 1; None if the order contradicts it.
    """
    into = messages[messages["flow"] == received]
    out = messages[messages["flow"] == sent]
    steps = min(len(into), len(out) - 1)
    if steps <= 0:
        return np.zeros(3, np.int64)
    ready, begun = into["ended_ns"][:steps], out["begun_ns"][1 : steps + 1]
    if (begun < into["begun_ns"][:steps]).any():
        return None
    free = out["ended_ns"][:steps]
    waits = np.maximum(ready - free, 0).sum()
    holds = np.maximum(begun - np.maximum(ready, free), 0).sum()
    return np.array([steps, waits, holds])


def _timed(
    everyone: Sequence[int], arrivals: Sequence[Ints], steps: dict[int, Ints] | None
) -> list[RankTiming]:
    if not arrivals:
        return []
    times = np.array(arrivals)
    late = times - times.min(axis=1, keepdims=True)
    order = np.sort(times, axis=1)
    last = times.argmax(axis=1)
    waited = order[:, -1] - order[:, -2] if len(everyone) > 1 else np.zeros(len(times), np.int64)
    timing = []
    for at, rank in enumerate(everyone):
        number, waits, holds = (None,) * 3 if steps is None else steps[rank].tolist()
        timing.append(
            RankTiming(
                rank=rank,
                last=int(((last == at) & (waited > 0)).sum()),
                late_ns=_quantiles(late[:, at]),
                others_wait_ns=int(waited[last == at].sum()),
                ring_steps=number,
                waits_ns=waits,
                holds_ns=holds,
            )
        )
    return sorted(timing, key=lambda record: (-record.others_wait_ns, record.rank))


def _quantiles(values: Ints) -> Quantiles:
    p50, p90, p99, p999 = np.percentile(values, (50, 90, 99, 99.9)).tolist()
    low, high = int(values.min()), int(values.max())
    return Quantiles(len(values), low, float(values.mean()), p50, p90, p99, p999, high)


def _slowest(ranks: Sequence[RankTiming], collectives: int) -> int | None:
    often_last = [record.rank for record in ranks if 2 * record.last > collectives >= _FEWEST]
    return often_last[0] if often_last else None


def _waits_least(ranks: Sequence[RankTiming]) -> int | None:
    """The only rank that waits least, if each has steps."""
    waits = sorted(
        (record.waits_ns, record.rank) for record in ranks if record.waits_ns is not None
    )
    if (
        len(waits) < 2
        or any(not record.ring_steps for record in ranks)
        or waits[0][0] == waits[1][0]
    ):
        return None
    return waits[0][1]
