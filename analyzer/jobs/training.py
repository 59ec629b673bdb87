"""Training jobs as results: from messages, grants and the names of ranks to `TrainingJob`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from ...kernels.kernel import Bools, Floats, Ints, Records
from ..measures.messages import GrantNames
from ..results.flow import Owner
from ..results.jobs import (
    Cause,
    Hang,
    Iterations,
    JobEpoch,
    JobGroup,
    JobRank,
    JobStep,
    MissingRank,
    Sending,
    StepRank,
    Straggler,
    TrainingJob,
)
from .steps import (
    LEAST_IDLE,
    SILENT_PERIODS,
    Edge,
    Epoch,
    Group,
    bundles_of,
    components,
    edges_of,
    groups_of,
    idle_times,
    shape_of,
)
from .waiting import ALWAYS, COSTLY, Timeline, Verdicts, Way, Wire, judge, timeline

_ALL_ALONG: Final = 0.05
"""Of a step: a rank that is later than the others by this in all steps is waited for."""
_APART_NS: Final = 2_000_000
"""What clocks of different taps may differ by."""
_MOST_SENDS: Final = 20_000
"""Of a job, in its result: of more steps only the newest and the longest say what ranks do."""
_MOST_OTHERS: Final = 100
"""Components listed that nothing shows to be a training job."""
_MARGIN: Final = 1.15
"""Packets reach the taps after they leave, and their last hop does not show."""
_LIKE_PAYLOAD: Final = 0.1
"""Of the largest collective: what the others differ by, if none is two that follow each other
without a pause."""
_HIDDEN: Final = 0.35
"""Of a step: after a longer idle time the collectives of a step run while ranks compute on."""


@dataclass(frozen=True)
class Sources:
    """What training jobs are found by."""

    messages: Records
    """MESSAGE records, by flow, then by begin."""
    flows: Records
    """FLOW records."""
    addresses: Sequence[str]
    """Text of each address by its number."""
    grants: Mapping[int, GrantNames]
    """By the flow of the grants."""
    owners: Mapping[int, Owner]
    """By flow, as logs name them."""
    open_ns: Mapping[int, int]
    """By flow: last packet of a message that is not complete."""
    lossy: Collection[int]
    """Flows with lost or retransmitted packets."""
    until_ns: Mapping[int, int]
    """By flow: until when a tap that sees it captures."""
    taps: int
    ways: Mapping[int, Sequence[str]]
    """By flow: taps that see most of its packets."""
    marked: Collection[int]
    """Flows with packets that are marked CE."""
    unreliable: str | None = None
    """Why messages may be missing: then no steps are looked for."""


class Slowdown(NamedTuple):
    """Consecutive steps of a job that last longer, and no rank is seen to delay them: because of
    their transfers, or for a reason that does not show. flows: whose messages take longer on the
    wire, if all of them pass `tap`."""

    job: int
    from_step: int
    until_step: int
    usual_ns: float
    """What a step lasts before."""
    cost_ns: float
    tap: str | None
    flows: Sequence[int]


class TrainingJobs(NamedTuple):
    """All jobs, in the order of their first message, and what the network costs them."""

    jobs: Sequence[TrainingJob]
    slowdowns: Sequence[Slowdown]


def training_jobs(sources: Sources) -> TrainingJobs:
    """The jobs that the messages show."""
    edges = edges_of(sources.messages, sources.flows, sources.grants)
    groups = _listed(groups_of(edges, sources.unreliable))
    of_jobs = Counter(a for group in groups if group.reason is None for a in group.addresses)
    shared = {address for address, jobs in of_jobs.items() if jobs > 1}
    found = [_Job(sources, group, number, shared) for number, group in enumerate(groups)]
    jobs = [job.result() for job in found]
    return TrainingJobs(jobs, [slow for job in found for slow in job.slowdowns])


def _listed(groups: Sequence[Group]) -> list[Group]:
    """All with steps or grants, and the first ones of the others."""
    shown: list[Group] = []
    others = 0
    for group in groups:
        is_job = group.reason is None or any(edge.grants is not None for edge in group.edges)
        others += not is_job
        if is_job or others <= _MOST_OTHERS:
            shown.append(group)
    return shown


class _Steps(NamedTuple):
    """The steps of one epoch."""

    epoch: Epoch
    line: Timeline
    last_ns: Ints
    """int64[steps]: last packet of the last message."""
    first_ns: Ints
    """int64[steps]: last packet of the first message to end."""
    durations: Floats
    """float64[steps] ns; NaN in a first step without a step before it."""
    verdicts: Verdicts


class _Run(NamedTuple):
    """Consecutive steps that are slow for one reason."""

    address: int | None
    """None: slow transfers that no host alone explains."""
    cause: Cause
    usual_ns: float
    from_step: int
    until_step: int
    cost_ns: float
    way: Way | None = None
    """What carries the slow transfers; None: it does not show."""
    flows: Sequence[int] = ()
    """Those over it."""


class _Job:
    """One job on its way to a result."""

    def __init__(self, sources: Sources, group: Group, number: int, shared: set[int]) -> None:
        """shared: addresses of several jobs, whose messages slow each other down."""
        self._sources, self._group, self._number = sources, group, number
        self._shared = shared
        self._ranks = self._named_ranks()
        self._groups = self._patterns()
        patterns = {part.pattern for part in self._groups}
        self._is_ring = patterns <= {"ring"}
        pieces = {frozenset(chain) for chain in self._chains}
        self._is_one_ring = self._is_ring and len(pieces) == 1
        self._is_in_stages = not self._is_one_ring and patterns <= {"ring", "pairs"}
        self._has_alike_ranks = self._is_ring or all(map(_is_chain, self._chains))
        self._may_blame = self._has_alike_ranks or patterns <= {"ring", "tree"}
        self.slowdowns: list[Slowdown] = []

    def result(self) -> TrainingJob:
        """The job with its steps, if it has some."""
        group, sources = self._group, self._sources
        steps = [] if group.reason else self._epochs_with_steps()
        iterations = None if group.reason else self._iterations(steps)
        runs = self._runs(steps)
        self.slowdowns = [
            Slowdown(
                self._number,
                run.from_step,
                run.until_step,
                run.usual_ns,
                run.cost_ns,
                _slow_tap(run),
                run.flows,
            )
            for run in runs
            if run.cause == "slow_transfers"
        ]
        stragglers = [
            self._straggler(run, run.address)
            for run in runs
            if run.address is not None
            and (run.cause != "slow_transfers" or run.until_step > run.from_step)
        ]
        if iterations is not None:
            iterations = self._with_waiting(iterations, steps, runs)
            iterations = self._with_ranks(iterations, steps)
        flows = {edge.flow for edge in group.edges}
        flows |= {edge.grants for edge in group.edges if edge.grants is not None}
        return TrainingJob(
            id=self._number,
            name=_letters(self._number),
            addresses=[sources.addresses[address] for address in group.addresses],
            ranks=self._ranks,
            flows=sorted(flows),
            groups=self._groups,
            epochs=self._job_epochs(),
            iterations=iterations,
            iterations_reason=group.reason,
            hang=self._hang(),
            stragglers=stragglers,
        )

    # --- ranks and patterns ------------------------------------------------------------------

    def _named_ranks(self) -> list[JobRank]:
        """Ranks by address: from logs, else from the grants that the address gets."""
        named: dict[int, set[tuple[int | None, str | None, Literal["grant", "log"] | None]]] = (
            defaultdict(set)
        )
        for edge in self._group.edges:
            owner = self._sources.owners.get(edge.flow)
            granted = None if edge.grants is None else self._sources.grants.get(edge.grants)
            if owner is not None and owner.ranks[0] is not None:
                named[edge.src].add((owner.ranks[0], owner.host, "log"))
            elif granted is not None and granted.rank >= 0:
                named[edge.src].add((granted.rank, None, "grant"))
        ranks = []
        for address in self._group.addresses:
            known = named.get(address) or {(None, None, None)}
            if any(source == "log" for _, _, source in known):
                known = {entry for entry in known if entry[2] == "log"}
            for rank, host, source in sorted(known, key=str):
                ranks.append(JobRank(self._sources.addresses[address], rank, host, source))
        return ranks

    def _rank_of(self, address: int) -> int | None:
        """The rank of an address; None if it has none or several."""
        text = self._sources.addresses[address]
        ranks = [rank.rank for rank in self._ranks if rank.address == text]
        return ranks[0] if len(ranks) == 1 else None

    def _patterns(self) -> list[JobGroup]:
        """Edges of one size and number of messages, joined by common addresses, are a group."""
        epoch = max(self._group.epochs, key=lambda epoch: len(epoch.bounds_ns), default=None)
        edges = self._group.edges if epoch is None else epoch.edges
        alike: dict[int, list[Edge]] = defaultdict(list)
        for edge in edges:
            alike[int(np.median(edge.bytes)) if len(edge.bytes) else 0].append(edge)
        if len(alike) > _MOST_SIZES:
            alike = {0: list(edges)}
        groups = []
        self._chains = []
        for members in alike.values():
            for component in components(members):
                groups.append(self._pattern(component))
                self._chains.append([(edge.src, edge.dst) for edge in component])
        return groups

    def _pattern(self, edges: Sequence[Edge]) -> JobGroup:
        pairs = Counter((edge.src, edge.dst) for edge in edges)
        granted = Counter((edge.src, edge.dst) for edge in edges if edge.grants is not None)
        slots = {
            granting.slot_bytes
            for edge in edges
            if edge.grants is not None
            and (granting := self._sources.grants.get(edge.grants)) is not None
        }
        channels = granted.most_common(1)[0][1] if granted else None
        parallel = pairs.most_common(1)[0][1]
        pattern, order = shape_of(pairs, _sizes_vary(edges))
        return JobGroup(
            pattern=pattern,
            order=[self._sources.addresses[address] for address in order],
            channels=channels,
            queue_pairs_per_connection=None if channels is None else max(1, parallel // channels),
            slot_bytes=slots.pop() if len(slots) == 1 and min(slots) > 0 else None,
        )

    # --- steps -------------------------------------------------------------------------------

    def _epochs_with_steps(self) -> list[_Steps]:
        found = []
        for epoch in self._group.epochs:
            if len(epoch.bounds_ns) < 2:
                continue
            line = timeline(epoch)
            last, first = _ends(epoch)
            before = np.array([last[0]], np.float64) * np.nan
            earlier = _last_before(epoch.edges, int(epoch.bounds_ns[0]))
            if earlier is not None:
                before[0] = last[0] - earlier
            durations = np.concatenate([before, np.diff(last).astype(np.float64)])
            verdicts = judge(line, durations)
            found.append(_Steps(epoch, line, last, first, durations, verdicts))
        return found

    def _iterations(self, found: Sequence[_Steps]) -> Iterations:
        steps: list[JobStep] = []
        numbers = {id(epoch): number for number, epoch in enumerate(self._group.epochs)}
        for part in found:
            collectives = part.line.end.shape[1]
            payload = _payload(part.epoch)
            low, high, exact = self._network(part)
            high = np.fmin(_MARGIN * high + LEAST_IDLE * part.verdicts.usual_ns, part.durations)
            for k in range(len(part.last_ns)):
                duration = part.durations[k]
                known = not np.isnan(duration)
                steps.append(
                    JobStep(
                        index=len(steps),
                        epoch=numbers[id(part.epoch)],
                        first_message_ns=int(part.first_ns[k]),
                        last_message_ns=int(part.last_ns[k]),
                        duration_ns=int(duration) if known else None,
                        waited_ns=None,
                        waited_for=None,
                        waited_for_address=None,
                        network_low_ns=_whole(low[k]) if known else None,
                        network_high_ns=_whole(high[k]) if known else None,
                        network_ns=_whole(exact[k]) if known else None,
                        payload_bytes=int(payload[k]),
                        collectives=collectives if self._is_ring else None,
                    )
                )
        lasting = np.array([step.duration_ns for step in steps if step.duration_ns is not None])
        low5, middle, high95 = np.quantile(lasting, (0.05, 0.5, 0.95)).tolist()
        return Iterations(
            messages_per_step=_messages_per_step(found),
            period_p50_ns=middle,
            period_p5_ns=low5,
            period_p95_ns=high95,
            boundary=self._group.boundary,
            steps=steps,
        )

    def _network(self, part: _Steps) -> tuple[Floats, Floats, Floats]:
        """Bounds of the network's part of each step, and its value where the pattern shows it."""
        transfer = part.line.transfer
        steps = len(part.last_ns)
        busy = _busy(part.epoch)
        nothing = np.full(steps, np.nan)
        senders = {edge.src for edge in part.epoch.edges}
        receivers = {edge.dst for edge in part.epoch.edges}
        if len(senders | receivers) < 3:
            return nothing, nothing, nothing
        if self._is_in_stages:  # transfers between other stages may not show
            return np.zeros(steps), part.durations, nothing
        if len(senders) < 3 or not self._is_ring or not part.line.is_complete:
            return np.zeros(steps), busy, nothing
        total = np.where(np.isnan(transfer).any(axis=1), busy, transfer.sum(axis=1))
        last = np.nan_to_num(transfer[:, -1], nan=0.0)
        low = last * self._least_part(part, senders)
        idle = part.epoch.bounds_ns[1:-1] - part.last_ns[:-1]
        hides = len(idle) and np.median(idle) >= _HIDDEN * np.nanmedian(part.durations)
        payload = part.line.payload
        apart = len(payload) > 2 and np.ptp(payload) <= _LIKE_PAYLOAD * payload.max()
        if hides and apart and self._group.boundary == "longest_idle":
            return last, np.maximum(total, last), last
        return low, np.maximum(total, low), nothing

    def _least_part(self, part: _Steps, ranks: Collection[int]) -> float:
        """Of the last transfer: the part of its last collective. Collectives that follow each
        other without a pause are one transfer here, and only the last one is waited for for sure.
        The least that a ring can do is to send one message over each of its edges n - 1 times."""
        messages = max(part.line.last_messages, 1)
        return min(1.0, (len(ranks) - 1) / messages)

    def _with_waiting(
        self, iterations: Iterations, found: Sequence[_Steps], runs: Sequence[_Run]
    ) -> Iterations:
        """The steps with the ranks that are waited for."""
        waited: list[tuple[float | None, int | None]] = []
        for part in found:
            waited += self._waited(part)
        for run in runs:
            if run.cause != "slow_transfers":
                for step in range(run.from_step, run.until_step + 1):
                    waited[step] = waited[step][0], run.address
            else:
                for step in range(run.from_step, run.until_step + 1):
                    waited[step] = waited[step][0], None
        steps = [
            replace(
                step,
                waited_ns=_whole(wait),
                waited_for=None if address is None else self._rank_of(address),
                waited_for_address=None if address is None else self._sources.addresses[address],
            )
            for step, (wait, address) in zip(iterations.steps, waited, strict=True)
        ]
        return replace(iterations, steps=steps)

    def _waited(self, part: _Steps) -> list[tuple[float | None, int | None]]:
        """Of each step: the wait of the median rank, and the address that most of it is for.

        Only a rank whose own delay is longer than that of the others is named: its inputs were
        there. Where a part of the ranks shows, another one may be later: nobody is named.
        """
        line, steps = part.line, len(part.last_ns)
        if not self._has_alike_ranks or len(line.ranks) < 3 or np.isnan(line.waits).all():
            return [(None, None)] * steps
        waits = np.nan_to_num(line.waits, nan=0.0)
        delays = np.nan_to_num(line.delay, nan=0.0)
        arrivals = np.nan_to_num(line.arrival, nan=-np.inf)
        result: list[tuple[float | None, int | None]] = []
        usual = part.verdicts.usual_ns
        for step in range(steps):
            if np.isfinite(line.arrival[step]).sum(axis=1).max() < 3:
                result.append((None, None))
                continue
            total: dict[int, float] = defaultdict(float)
            for at in range(waits.shape[1]):
                latest = int(np.argmax(arrivals[step, at]))
                own = delays[step, at, latest] - float(np.median(delays[step, at]))
                if own >= 0.5 * waits[step, at]:
                    total[latest] += float(waits[step, at])
            wait = float(waits[step].sum())
            most = max(total, key=lambda rank: total[rank], default=None)
            named = most is not None and total[most] >= COSTLY * usual and line.is_complete
            result.append((wait, line.ranks[most] if named and most is not None else None))
        return result

    def _with_ranks(self, iterations: Iterations, found: Sequence[_Steps]) -> Iterations:
        """The steps with what each rank does, as many as `_MOST_SENDS` allows."""
        each = max(part.line.arrival.shape[1] * part.line.arrival.shape[2] for part in found)
        most = max(2, _MOST_SENDS // max(1, each))
        order = sorted(iterations.steps, key=lambda step: step.duration_ns or 0)
        half = most if len(order) <= most else most // 2
        shown = {step.index for step in (*order[-half:], *iterations.steps[-half:])}
        places = [(part, at) for part in found for at in range(len(part.last_ns))]
        steps = [
            replace(step, ranks=self._ranks_in(*place)) if step.index in shown else step
            for step, place in zip(iterations.steps, places, strict=True)
        ]
        return replace(iterations, steps=steps)

    def _ranks_in(self, part: _Steps, step: int) -> list[StepRank]:
        line, origin = part.line, part.line.origin_ns
        arrival, done = line.arrival[step], line.done[step]
        known = ~np.isnan(arrival).all(axis=1)
        last = np.full(len(arrival), np.nan)
        last[known] = np.nanmax(arrival[known], axis=1)
        waits = last[:, None] - arrival
        shows = bool(known.any()) and self._has_alike_ranks
        ranks = []
        for at, number in enumerate(line.ranks):
            sends = [
                None
                if np.isnan(begun)
                else Sending(origin + int(begun), origin + int(until), int(wait))
                for begun, until, wait in zip(
                    arrival[:, at], done[:, at], waits[:, at], strict=True
                )
            ]
            spans = line.first_data[step, at], line.last_data[step, at]
            first_ns, last_ns = (None if np.isnan(ns) else origin + int(ns) for ns in spans)
            ranks.append(
                StepRank(
                    address=self._sources.addresses[number],
                    first_data_ns=first_ns,
                    last_data_ns=last_ns,
                    waited_ns=int(np.nansum(waits[:, at])) if shows else None,
                    sends=sends if shows else [],
                )
            )
        return ranks

    # --- stragglers --------------------------------------------------------------------------

    def _runs(self, found: Sequence[_Steps]) -> list[_Run]:
        """Runs of slow steps with one reason, over all epochs."""
        runs: list[_Run] = []
        start = 0
        for part in found:
            runs += self._runs_of(part, start)
            start += len(part.last_ns)
        return runs

    def _runs_of(self, part: _Steps, start: int) -> list[_Run]:
        verdicts, line = part.verdicts, part.line
        extra = part.durations - verdicts.usual_ns
        sources = self._sources
        wire = Wire(part.epoch, sources.ways, sources.marked, verdicts.slow, extra)
        reasons: list[_Reason | None] = []
        for step in range(len(part.last_ns)):
            blame = verdicts.blamed[step] if self._may_blame else None
            if blame is not None:
                reasons.append(_Reason(line.ranks[blame.rank], blame.cause))
            elif verdicts.slow[step]:
                reasons.append(self._slow_transfers(wire, step))
            else:
                reasons.append(None)
        if not verdicts.slow.any() and (late := self._late_all_along(part)) is not None:
            last = start + len(part.last_ns) - 1
            waits = np.nan_to_num(line.waits, nan=0.0).sum(axis=1)
            usual = verdicts.usual_ns
            return [_Run(late, "late_data", usual, start, last, float(waits.sum()))]
        runs: list[_Run] = []
        first = 0
        for reason, together in groupby(reasons, key=_alike):
            entries = list(together)
            count = len(entries)
            if reason is not None and (one := entries[0]) is not None:
                causes = [entry.cause for entry in entries if entry is not None]
                usual = _usual_before(part, first)
                cost = float(np.nansum(part.durations[first : first + count] - usual))
                cause = Counter(causes).most_common(1)[0][0]
                address, way = one.address, one.way
                doubtful = not line.is_complete or address in self._shared
                if count == 1 and doubtful:  # another rank or job may delay a single step
                    address, way, cause = None, None, "slow_transfers"
                flows = [] if way is None else [part.epoch.edges[at].flow for at in way.edges]
                until = start + first + count - 1
                runs.append(_Run(address, cause, usual, start + first, until, cost, way, flows))
            first += count
        return runs

    def _slow_transfers(self, wire: Wire, step: int) -> _Reason:
        """Why a step is slow that no rank delays: a host or tap over which messages take longer."""
        way = wire.source(step)
        if way is None or wire.addresses(way) & self._shared:
            return _Reason(None, "slow_transfers")
        address = int(way.name) if way.kind == "sender" else None
        return _Reason(address, "slow_transfers", way)

    def _late_all_along(self, part: _Steps) -> int | None:
        """The rank that is later than the others in nearly all steps of a ring."""
        line, usual = part.line, part.verdicts.usual_ns
        if not self._is_one_ring or len(line.ranks) < 3 or np.isnan(usual):
            return None
        delays = np.nan_to_num(line.delay, nan=0.0)
        late = (delays - np.median(delays, axis=2, keepdims=True)).sum(axis=1)
        usually = np.median(late, axis=0)
        rank = int(np.argmax(usually))
        least = max(_ALL_ALONG * usual, _APART_NS if self._sources.taps > 1 else 0)
        often = np.mean(np.argmax(late, axis=1) == rank)
        waits = float(np.median(np.nan_to_num(line.waits, nan=0.0).sum(axis=1)))
        named = min(usually[rank], waits) >= least and often >= 0.7 and line.has_inputs[rank]
        return line.ranks[rank] if named else None

    def _straggler(self, run: _Run, address: int) -> Straggler:
        return Straggler(
            address=self._sources.addresses[address],
            rank=self._rank_of(address),
            from_step=run.from_step,
            until_step=run.until_step,
            wait_ns=max(0, int(run.cost_ns)),
            cause=run.cause,
            confidence="likely" if run.until_step > run.from_step else "possible",
        )

    # --- epochs and hangs --------------------------------------------------------------------

    def _job_epochs(self) -> list[JobEpoch]:
        epochs = []
        for epoch, after in pairwise([*self._group.epochs, None]):
            assert epoch is not None
            begun = min(int(edge.begun_ns[0]) for edge in epoch.edges)
            ended = max(int(edge.ended_ns.max()) for edge in epoch.edges)
            how: str = "end"
            if after is not None:
                again = {edge.flow for edge in epoch.edges} & {edge.flow for edge in after.edges}
                how = "silence" if again else "restart"
            elif self._is_silent_after(epoch):
                how = "silence"
            epochs.append(JobEpoch(begun, ended, how))  # type: ignore[arg-type]
        return epochs

    def _is_silent_after(self, epoch: Epoch) -> bool:
        """Whether all taps that see the job capture on for a while, and see nothing of it."""
        rhythm = self._group.rhythm
        ended = max(int(edge.ended_ns.max()) for edge in epoch.edges)
        until = min(self._sources.until_ns.get(edge.flow, 0) for edge in epoch.edges)
        return rhythm is not None and until - ended > SILENT_PERIODS * rhythm.period_ns

    def _hang(self) -> Hang | None:
        """The last time that the job stops within a step."""
        group = self._group
        if group.rhythm is None or group.reason:
            return None
        for number in range(len(group.epochs) - 1, -1, -1):
            epoch = group.epochs[number]
            following = group.epochs[number + 1 :]
            ended = max(int(edge.ended_ns.max()) for edge in epoch.edges)
            if not following and not self._is_silent_after(epoch):
                continue
            if epoch.rest_from_ns is None:
                continue  # it ended, or nothing tells
            again = {e.flow for f in following[:1] for e in f.edges}
            if any(e.flow in again and e.flow in self._sources.lossy for e in epoch.edges):
                continue  # it waited for retransmissions
            until = min((int(e.begun_ns[0]) for f in following[:1] for e in f.edges), default=None)
            missing = self._missing(epoch)
            restarted = until is not None and not again & {e.flow for e in epoch.edges}
            if missing or restarted:  # else the job may have ended
                return Hang(ended, until, missing)
        return None

    def _missing(self, epoch: Epoch) -> list[MissingRank]:
        """The rank that the others wait for, if one alone explains that the step does not go on.

        In a ring, each rank gets further than the one that waits for it: the missing one has sent
        the fewest messages. Elsewhere it is the only one that has sent nothing although it has
        what it waits for in other steps, and a grant.
        """
        begun = epoch.rest_from_ns
        if begun is None or len({edge.src for edge in epoch.edges}) < 3:
            return []
        edges = [bundle.whole for bundle in bundles_of(epoch.edges)]
        sent = [len(edge.begun_ns) - int(np.searchsorted(edge.begun_ns, begun)) for edge in edges]
        by_rank: dict[int, int] = defaultdict(int)
        for count, edge in zip(sent, edges, strict=True):
            by_rank[edge.src] += count
        free = {  # to send: a grant is left
            edge.src
            for edge in edges
            if not len(edge.granted_ns) or edge.granted_ns[-1] > edge.begun_ns[-1]
        }
        if self._is_one_ring:
            fewest = min(by_rank.values())
            late = [rank for rank, count in by_rank.items() if count == fewest]
            late = [rank for rank in late if rank in free] or late
        else:
            needs = _needs(edges, epoch.bounds_ns)
            come = {(e.src, e.dst) for count, e in zip(sent, edges, strict=True) if count}
            late = [
                rank
                for rank, count in by_rank.items()
                if not count and rank in free and all((src, rank) in come for src in needs[rank])
            ]
        if len(late) != 1:
            return []
        return [MissingRank(self._sources.addresses[late[0]], self._rank_of(late[0]))]


def _needs(edges: Sequence[Edge], bounds_ns: Ints) -> dict[int, set[int]]:
    """By rank, those whose first message of a step always comes before its own."""
    steps = len(bounds_ns) - 1
    first: dict[int, Floats] = {}
    for edge in edges:
        mine = first.setdefault(edge.src, np.full(steps, np.inf))
        np.fmin(mine, _firsts(edge.begun_ns, edge, bounds_ns), out=mine)
    needs: dict[int, set[int]] = defaultdict(set)
    for edge in edges:
        own = first.get(edge.dst)
        if own is None:
            continue
        before = _firsts(edge.ended_ns, edge, bounds_ns) <= own
        if np.mean(before) >= ALWAYS:
            needs[edge.dst].add(edge.src)
    return needs


def _firsts(times: Ints, edge: Edge, bounds_ns: Ints) -> Floats:
    """float64[steps]: of the first message of an edge in each step; infinite without one."""
    at = np.searchsorted(edge.begun_ns, bounds_ns)
    sends = at[1:] > at[:-1]
    firsts = np.full(len(sends), np.inf)
    firsts[sends] = times[at[:-1][sends]]
    return firsts


def _slow_tap(run: _Run) -> str | None:
    """The tap over which the transfers of several steps are slow."""
    if run.way is None or run.way.kind != "tap" or run.from_step == run.until_step:
        return None
    return str(run.way.name)


def _is_chain(pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether these are a ring or pieces of one, seen in part: each address sends to one other
    address and receives from one, at most."""
    different = set(pairs)
    most_out = max(Counter(src for src, _ in different).values())
    most_in = max(Counter(dst for _, dst in different).values())
    return most_out == most_in == 1


class _Reason(NamedTuple):
    """Why a step is slow."""

    address: int | None
    cause: Cause
    way: Way | None = None


def _alike(reason: _Reason | None) -> tuple[int | None, bool, Way | None] | None:
    """Steps of one run: grants that are late in some of them make no other run."""
    if reason is None:
        return None
    return reason.address, reason.cause == "slow_transfers", reason.way


_MOST_SIZES: Final = 8
"""Messages of more sizes vary: their flows are one group."""


def _letters(number: int) -> str:
    """a to z, then aa, ab …"""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(ord("a") + letter) + text
    return text


def _whole(value: float | None) -> int | None:
    return None if value is None or np.isnan(value) else int(value)


def _sizes_vary(edges: Sequence[Edge]) -> bool:
    """Whether most messages of these edges have sizes of their own."""
    sizes = np.concatenate([edge.bytes for edge in edges])
    return len(np.unique(sizes)) > max(8, 0.1 * len(sizes))


def _ends(epoch: Epoch) -> tuple[Ints, Ints]:
    """int64[steps] twice: end of the last message, and of the first message to end."""
    bounds = epoch.bounds_ns
    last = np.zeros(len(bounds) - 1, np.int64)
    first = np.full(len(bounds) - 1, np.iinfo(np.int64).max)
    for edge in epoch.edges:
        at = np.searchsorted(edge.begun_ns, bounds)
        sends = np.flatnonzero(np.diff(at))
        if not len(sends):
            continue
        latest = np.maximum.reduceat(edge.ended_ns[: at[-1]], at[:-1][sends])
        earliest = np.minimum.reduceat(edge.ended_ns[: at[-1]], at[:-1][sends])
        last[sends] = np.maximum(last[sends], latest)
        first[sends] = np.minimum(first[sends], earliest)
    return last, first


def _last_before(edges: Sequence[Edge], time_ns: int) -> int | None:
    """End of the last message that begins before."""
    ends = []
    for edge in edges:
        at = int(np.searchsorted(edge.begun_ns, time_ns))
        if at:
            ends.append(int(edge.ended_ns[:at].max()))
    return max(ends, default=None)


def _payload(epoch: Epoch) -> Ints:
    """int64[steps]."""
    total = np.zeros(len(epoch.bounds_ns) - 1, np.int64)
    for edge in epoch.edges:
        at = np.searchsorted(edge.begun_ns, epoch.bounds_ns)
        total += np.diff(np.concatenate([[0], np.cumsum(edge.bytes)])[at])
    return total


def _busy(epoch: Epoch) -> Floats:
    """float64[steps]: time of a step without its long pauses, each of them shortened: edges that
    the taps do not show may still send when the others pause."""
    bounds = epoch.bounds_ns
    lasting = float(np.median(np.diff(bounds))) if len(bounds) > 1 else 0.0
    idle = idle_times(epoch.edges, max(1, round(LEAST_IDLE * lasting)))
    shortened = np.maximum(idle.lasting_ns - round(LEAST_IDLE * lasting), 0)
    spent = np.concatenate([[0], np.cumsum(shortened)])
    within = np.diff(spent[np.searchsorted(idle.until_ns, bounds, side="right")])
    if len(within):  # a longer silence than usual may be a timeout
        within = np.minimum(within, np.median(within))
    last, _ = _ends(epoch)
    active = np.diff(bounds) - within
    busy: Floats = np.minimum(active, last - bounds[:-1]).astype(np.float64)
    return busy


def _messages_per_step(found: Sequence[_Steps]) -> int | None:
    counts: list[int] = []
    for part in found:
        at = [np.searchsorted(edge.begun_ns, part.epoch.bounds_ns) for edge in part.epoch.edges]
        counts += np.sum([np.diff(places) for places in at], axis=0).tolist()
    usual, times = Counter(counts).most_common(1)[0]
    return usual if times >= 0.8 * len(counts) else None


def _usual_before(part: _Steps, step: int) -> float:
    """What a step lasts before this one, else what it usually lasts."""
    fine: Bools = ~part.verdicts.slow & ~np.isnan(part.durations)
    before = part.durations[:step][fine[:step]]
    if len(before) >= 2:
        return float(np.median(before))
    return part.verdicts.usual_ns
