"""Recorded collectives beside the steps of jobs in the packets.

Clocks of hosts and capture differ by an unknown time, so that nothing depends on them but one
choice, which says so: collectives belong to steps by their number per period and their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...kernels.kernel import Ints, Records
from ..results.job_records import (
    BesidePackets,
    JobRecords,
    LateRank,
    MatchedBy,
    MissingCollective,
    RecordedGroup,
    StepCollectives,
)
from ..results.jobs import Boundary, Hang, TrainingJob
from .records import (
    GroupKey,
    RankLog,
    Recorded,
    groups_of,
    in_order,
    late_of,
    listed,
    mismatches_of,
    missing_of,
)

_FEWEST_PERIODS: Final = 3
_MOST_PERIOD: Final = 4_096
"""Collectives per step that are looked for."""
_REGULAR: Final = 0.45
"""Share of the collectives, the newest, that repeat without exception."""
_OFF: Final = 0.05
"""Of the period of a job: what the collectives of a step may take longer or shorter."""
_SAME_TIME_NS: Final = 60_000_000_000
"""Clocks of hosts and capture that differ by more are of another time."""
_SLACK_NS: Final = 1_000_000_000
"""What such clocks usually differ by, at most."""
_NEAR: Final = 0.25
"""Of a period: what steps by clocks may scatter by."""
_MOST_GROUPS: Final = 8
"""Groups beside one job."""


def job_records(recorded: Recorded, jobs: Sequence[TrainingJob]) -> JobRecords:
    """The result: what the records say, and what they say beside the packets."""
    groups = groups_of(recorded)
    notes = list(recorded.notes)
    missing = missing_of(recorded, notes)
    mismatches, late = mismatches_of(recorded), late_of(recorded)
    joined = [
        part for job in jobs for part in beside(job, recorded, groups, missing, late)[:_MOST_GROUPS]
    ]
    claims = Counter(part.group for part in joined)
    for group, times in claims.items():
        if times > 1:
            notes.append(
                f"group {groups[group].name} fits {times} jobs in the packets: not joined with any"
            )
    return JobRecords(
        files=recorded.files,
        collectives=recorded.collectives,
        groups=groups,
        missing=missing,
        mismatches=mismatches,
        late=late,
        beside=[part for part in joined if claims[part.group] == 1],
        notes=notes,
    )


def beside(
    job: TrainingJob,
    recorded: Recorded,
    groups: Sequence[RecordedGroup],
    missing: Sequence[MissingCollective],
    late: Sequence[LateRank],
) -> list[BesidePackets]:
    """The groups whose collectives have the period of the job, and how they fit its steps."""
    parts = []
    for group, (key, logs) in zip(groups, in_order(recorded), strict=True):
        if not _may_be_of(job, key, group):
            continue
        log = max(logs, key=lambda log: len(log.collectives))
        rhythm = _rhythm(job, key, log.collectives)
        if rhythm is None:
            continue
        first = next((entry for entry in missing if entry.group == group.id), None)
        slow = [entry for entry in late if entry.group == group.id and entry.slowest]
        parts.append(_Beside(job, recorded, group, key, logs, rhythm, first, slow).result())
    return parts


def _may_be_of(job: TrainingJob, key: GroupKey, group: RecordedGroup) -> bool:
    """Whether ranks and hosts that both know do not exclude it."""
    if key.size < 2 or job.iterations is None:
        return False
    ranks = {rank.rank for rank in job.ranks if rank.rank is not None}
    if key.ranks is not None and not ranks <= set(key.ranks):
        return False
    hosts = {rank.host for rank in job.ranks if rank.host is not None}
    recorded = {rank.host for rank in group.ranks if rank.host is not None}
    return not hosts or not recorded or bool(hosts & recorded)


class _Rhythm(NamedTuple):
    """Whole steps of one rank in the records."""

    per_step: int
    """Collectives."""
    rows: Records
    """COLLECTIVE records of whole steps, in order."""
    ends_ns: Ints
    """int64[steps], by the clock of the host."""


def _rhythm(job: TrainingJob, key: GroupKey, rows: Records) -> _Rhythm | None:
    """Steps by the number of collectives in a period of the job; None: it is no whole number."""
    assert job.iterations is not None
    if key.source == "flight_recorder":
        rows = rows[np.argsort(rows["sequence"], kind="stable")]
        if (np.diff(rows["sequence"]) != 1).any():
            return None
        times = rows["created_ns"]
    else:
        times = rows["completed_ns"]
    repeat = _period(rows)
    if repeat is None:
        return None
    start, shortest = repeat
    rows, times = rows[start:], times[start:]
    per_step = _per_step(times, shortest, job.iterations.period_p50_ns)
    if per_step is None:
        return None
    begin = (_last_of_step(job.iterations.boundary, rows, times, per_step) + 1) % per_step
    end = begin + (len(rows) - begin) // per_step * per_step
    return _Rhythm(per_step, rows[begin:end], times[begin:end][per_step - 1 :: per_step])


def _per_step(times: Ints, shortest: int, period_ns: float) -> int | None:
    """The multiple of `shortest` collectives that takes a period of the job; None: none does."""
    spacing = (times[-1] - times[0]) / (len(times) - 1)
    if spacing <= 0:
        return None
    about = round(period_ns / spacing / shortest)
    best, error = None, _OFF
    for per_step in (shortest * (about + more) for more in (-1, 0, 1)):
        if 0 < per_step and len(times) >= per_step * _FEWEST_PERIODS:
            lasting = float(np.median(times[per_step:] - times[:-per_step]))
            if abs(lasting / period_ns - 1) < error:
                best, error = per_step, abs(lasting / period_ns - 1)
    return best


def _last_of_step(boundary: Boundary, rows: Records, times: Ints, per_step: int) -> int:
    """Place of the last collective of a step: the marker, else before the longest pause."""
    if boundary == "marker" and (rows["bytes"][:per_step] >= 0).all():
        return int(np.argmin(rows["bytes"][:per_step]))
    gaps = np.diff(times)
    return int(np.argmax([float(np.median(gaps[place::per_step])) for place in range(per_step)]))


def _period(rows: Records) -> tuple[int, int] | None:
    """Where collectives begin to repeat, and after how many they do."""
    calls = np.stack([rows["operation"], rows["inputs"], rows["outputs"]], axis=1)
    like_last = np.flatnonzero((calls == calls[-1:]).all(axis=1))
    for period in (len(rows) - 1 - like_last[-2::-1]).tolist():
        if period > min(len(rows) // _FEWEST_PERIODS, _MOST_PERIOD):
            return None
        wrong = np.flatnonzero((calls[period:] != calls[:-period]).any(axis=1))
        start = int(wrong[-1]) + 1 if len(wrong) else 0
        if len(rows) - start >= max(_FEWEST_PERIODS * period, _REGULAR * len(rows)):
            return start, period
    return None


class _Beside:
    """One group beside one job."""

    def __init__(
        self,
        job: TrainingJob,
        recorded: Recorded,
        group: RecordedGroup,
        key: GroupKey,
        logs: Sequence[RankLog],
        rhythm: _Rhythm,
        missing: MissingCollective | None,
        slowest: Sequence[LateRank],
    ) -> None:
        self._job, self._texts, self._group, self._key = job, recorded.texts.all, group, key
        self._logs, self._rhythm, self._missing, self._slowest = logs, rhythm, missing, slowest
        self._agreements: list[str] = []
        self._contradictions: list[str] = []
        self._notes: list[str] = []

    def result(self) -> BesidePackets:
        """Steps with their collectives, and where both sources agree or not."""
        assert self._job.iterations is not None
        ends = np.array([step.last_message_ns for step in self._job.iterations.steps], np.int64)
        matched, shift = self._match(ends)
        steps: list[StepCollectives] = []
        offset = None
        if matched is not None:
            steps, offset = self._steps(ends, shift)
            if self._rhythm.per_step > 1 and self._job.iterations.boundary != "marker":
                self._notes.append(
                    "in the records, a step begins after the longest pause between calls"
                )
        self._compare_hang()
        self._compare_stragglers()
        return BesidePackets(
            job=self._job.id,
            group=self._group.id,
            matched_by=matched,
            collectives_per_step=self._rhythm.per_step,
            clock_offset_ns=offset,
            steps=steps,
            agreements=self._agreements,
            contradictions=self._contradictions,
            notes=self._notes,
        )

    # --- steps -------------------------------------------------------------------------------

    def _match(self, ends: Ints) -> tuple[MatchedBy | None, int]:
        """How steps were matched, and which recorded step is the first of the packets."""
        recorded = self._rhythm.ends_ns
        complete, steps = self._complete_before_hang(ends)
        if complete and abs(int(recorded[complete - 1] - ends[steps - 1])) < _SAME_TIME_NS:
            return "end", complete - steps
        if len(recorded) == len(ends) and abs(int(recorded[0] - ends[0])) < _SAME_TIME_NS:
            return "count", 0
        places = np.searchsorted(recorded, ends)
        before = np.clip(places - 1, 0, len(recorded) - 1)
        after = np.clip(places, 0, len(recorded) - 1)
        nearer = np.abs(recorded[before] - ends) <= np.abs(recorded[after] - ends)
        nearest = np.where(nearer, before, after)
        shift = Counter((nearest - np.arange(len(ends))).tolist()).most_common(1)[0][0]
        apart = self._apart(ends, shift)
        assert self._job.iterations is not None
        period = self._job.iterations.period_p50_ns
        if len(apart) < min(3, len(ends)) or abs(float(np.median(apart))) > period:
            self._notes.append("the records are of another time than the packets, by their clocks")
            return None, 0
        if float(np.median(np.abs(apart - np.median(apart)))) > _NEAR * period:
            self._notes.append("the records do not keep time with the steps: not matched")
            return None, 0
        self._notes.append(
            "steps were matched by the clocks of hosts and capture: if those differ by more than"
            " half a step, all collectives belong one or more steps earlier or later"
        )
        return "clocks", shift

    def _complete_before_hang(self, ends: Ints) -> tuple[int, int]:
        """Steps before the hang in the records and in the packets; 0: no such end in both."""
        hang, missing = self._job.hang, self._missing
        if hang is None or missing is None or not self._is_final(hang):
            return 0, 0
        after = missing.sequence - int(self._rhythm.rows["sequence"][0])
        complete = min(max(after // self._rhythm.per_step, 0), len(self._rhythm.ends_ns))
        steps = int((ends <= hang.from_ns).sum())
        return (complete, steps) if complete and steps else (0, 0)

    def _is_final(self, hang: Hang) -> bool:
        """Whether the queue pairs of the hang do not go on: it lasts, or a restart follows."""
        return hang.until_ns is None or any(
            epoch.ended_by == "restart" and epoch.until_ns == hang.from_ns
            for epoch in self._job.epochs
        )

    def _apart(self, ends: Ints, shift: int) -> Ints:
        """int64 ns: records less packets at the ends of the steps that both have."""
        first, last = max(0, -shift), min(len(ends), len(self._rhythm.ends_ns) - shift)
        if last <= first:
            return np.zeros(0, np.int64)
        apart: Ints = self._rhythm.ends_ns[first + shift : last + shift] - ends[first:last]
        return apart

    def _steps(self, ends: Ints, shift: int) -> tuple[list[StepCollectives], int | None]:
        apart = self._apart(ends, shift)
        first, count = max(0, -shift), self._rhythm.per_step
        steps = []
        for step in range(first, first + len(apart)):
            rows = self._rhythm.rows[(step + shift) * count : (step + shift + 1) * count]
            names = Counter(self._texts[number] for number in rows["operation"].tolist())
            numbered = self._key.source == "flight_recorder"
            steps.append(
                StepCollectives(
                    step=step,
                    first_sequence=int(rows["sequence"][0]) if numbered else None,
                    last_sequence=int(rows["sequence"][-1]) if numbered else None,
                    operations=dict(names),
                )
            )
        return steps, int(np.median(apart)) if len(apart) else None

    # --- agreements and contradictions -------------------------------------------------------

    def _compare_hang(self) -> None:
        hang, missing = self._job.hang, self._missing
        until = self._job.epochs[-1].until_ns
        if missing is None:
            if hang is not None and self._is_final(hang):
                self._compare_complete(hang)
            return
        name = f"{missing.operation} {missing.sequence}"
        if hang is None:
            goes_on = until > missing.since_ns + _SLACK_NS
            if goes_on and missing.timed_out:
                self._contradictions.append(
                    f"records: {name} timed out; packets: the job goes on after it was called"
                )
            elif goes_on:
                self._notes.append(
                    f"{name} was in flight when the records were written: the packets go on after"
                    " it was called"
                )
            return
        if not self._is_final(hang):
            if missing.timed_out:
                self._contradictions.append(
                    f"records: {name} timed out; packets: the job stops, then its queue pairs go on"
                )
            return
        self._compare_missing(hang, missing, name)

    def _compare_complete(self, hang: Hang) -> None:
        if self._key.source != "flight_recorder":
            return
        last = max(
            int(max(log.collectives["created_ns"].max(), log.collectives["completed_ns"].max()))
            for log in self._logs
            if len(log.collectives)
        )
        if last > hang.from_ns + _SLACK_NS:
            self._contradictions.append(
                "packets: the job stops and its queue pairs do not go on; records: all collectives"
                " are complete, the last after that by the clock of its host"
            )
        else:
            self._notes.append("the records end before the hang that the packets show")

    def _compare_missing(self, hang: Hang, missing: MissingCollective, name: str) -> None:
        """The ranks that are missing, where both name them."""
        if not missing.ranks:
            if hang.missing and not missing.unknown:
                who = _who(hang)
                self._contradictions.append(
                    f"packets: {who} missing; records: all ranks called {name}, none completed it"
                )
            return
        said = f"{listed('rank', missing.ranks)} {_LACKS[missing.lacking]} {name}"
        ranks = [missing_rank.rank for missing_rank in hang.missing]
        known = [rank for rank in ranks if rank is not None]
        if not known or len(known) < len(ranks) or self._key.ranks is None:
            self._notes.append(f"records: {said}; the packets do not show which rank is missing")
        elif set(known) & set(missing.ranks):
            self._agreements.append(f"records: {said}; packets: {_who(hang)} missing")
        else:
            self._contradictions.append(f"records: {said}; packets: {_who(hang)} missing")

    def _compare_stragglers(self) -> None:
        """The rank that others wait for, where both name one."""
        named = {entry.rank for entry in self._job.stragglers if entry.rank is not None}
        if not named or not self._slowest or self._key.ranks is None:
            return
        ranks = [entry.rank for entry in self._slowest]
        text = (
            f"records: {listed('rank', ranks)} enters collectives last; packets: "
            f"{listed('rank', sorted(named))} is waited for"
        )
        (self._agreements if named & set(ranks) else self._contradictions).append(text)


_LACKS: Final = {
    "enqueued": "did not call",
    "started": "called but did not start",
    "completed": "did not complete",
}


def _who(hang: Hang) -> str:
    """`rank 2 (10.1.3.11) is`."""
    names = [
        rank.address if rank.rank is None else f"rank {rank.rank} ({rank.address})"
        for rank in hang.missing
    ]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
