"""Hand-made training jobs: a ring of ranks in steps of 30 ms, with changes."""

from __future__ import annotations

from typing import Any

from factories_results import START_NS
from msgspec.structs import replace

from rocescope.analyzer.results.jobs import (
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

MS = 1_000_000
STEP = 30 * MS
LATE = 10 * MS
"""By which the late rank is late, in its second collective."""


def address(rank: int) -> str:
    return f"10.1.{rank + 1}.10"


def step(index: int, begin_ns: int, ranks: int = 4, late: int | None = None) -> JobStep:
    """Two collectives: all ranks send from 10 to 12 ms, then from 20 to 24 ms after the begin; the
    late rank's data of the second comes LATE, and all end as much later."""
    more = 0 if late is None else LATE

    def sends(rank: int) -> list[Sending | None]:
        own = more if rank == late else 0
        second = begin_ns + 20 * MS
        return [
            Sending(begin_ns + 10 * MS, begin_ns + 12 * MS, 0),
            Sending(second + own, second + 4 * MS + more, more - own),
        ]

    def of_rank(rank: int) -> StepRank:
        own = sends(rank)
        last = own[-1]
        return StepRank(
            address=address(rank),
            first_data_ns=begin_ns + 10 * MS,
            last_data_ns=None if last is None else last.until_ns,
            waited_ns=0 if late is None or rank == late else LATE,
            sends=own,
        )

    end = begin_ns + 24 * MS + more
    return JobStep(
        index=index,
        epoch=0,
        first_message_ns=begin_ns + 10 * MS + 1000,
        last_message_ns=end,
        duration_ns=None if index == 0 else STEP + more,
        waited_ns=more,
        waited_for=late,
        waited_for_address=None if late is None else address(late),
        network_low_ns=3 * MS,
        network_high_ns=6 * MS,
        network_ns=None,
        payload_bytes=2_359_296,
        collectives=2,
        ranks=[of_rank(rank) for rank in range(ranks)],
    )


def steps(count: int, ranks: int = 4, late: dict[int, int] | None = None) -> list[JobStep]:
    """late: rank by the index of the step that waits for it."""
    made, begin = [], START_NS
    for index in range(count):
        each = step(index, begin + 6 * MS, ranks, (late or {}).get(index))
        made.append(each)
        begin = each.last_message_ns
    return made


def iterations(of: list[JobStep], **changes: Any) -> Iterations:
    """messages_per_step: 96."""
    usual = Iterations(
        messages_per_step=96,
        period_p50_ns=float(STEP),
        period_p5_ns=float(STEP),
        period_p95_ns=float(STEP + LATE),
        boundary="longest_idle",
        steps=of,
    )
    return replace(usual, **changes)


def job(
    count: int = 8, ranks: int = 4, late: dict[int, int] | None = None, **changes: Any
) -> TrainingJob:
    """A ring whose ranks are known from grants; the first four flows are its data."""
    made = steps(count, ranks, late)
    clean = TrainingJob(
        id=0,
        name="a",
        addresses=[address(rank) for rank in range(ranks)],
        ranks=[JobRank(address(rank), rank, None, "grant") for rank in range(ranks)],
        flows=[0, 1, 2, 3],
        groups=[
            JobGroup(
                pattern="ring",
                order=[address(rank) for rank in range(ranks)],
                channels=1,
                queue_pairs_per_connection=1,
                slot_bytes=32_768,
            )
        ],
        epochs=[JobEpoch(START_NS, made[-1].last_message_ns, "end")],
        iterations=iterations(made),
        iterations_reason=None,
        hang=None,
        stragglers=[],
    )
    return replace(clean, **changes)


def straggling(**changes: Any) -> TrainingJob:
    """Steps 3 to 5 wait for rank 2."""
    one = Straggler(
        address=address(2),
        rank=2,
        from_step=3,
        until_step=5,
        wait_ns=3 * LATE,
        cause="late_data",
        confidence="likely",
    )
    return job(late={3: 2, 4: 2, 5: 2}, stragglers=[replace(one, **changes)])


def hanging(returns: bool = True) -> TrainingJob:
    """Rank 3 is silent after step 3; a restart after 400 ms, or none."""
    stops = START_NS + 150 * MS
    until = stops + 400 * MS if returns else None
    epochs = [JobEpoch(START_NS, stops, "restart" if returns else "silence")]
    if until is not None:
        epochs.append(JobEpoch(until, until + 120 * MS, "end"))
    missing = [MissingRank(address(3), 3)]
    return job(count=4, epochs=epochs, hang=Hang(stops, until, missing))


def no_iterations(**changes: Any) -> TrainingJob:
    """Traffic that is no training job."""
    unknown = [JobRank(address(rank), None, None, None) for rank in range(2)]
    reason = "its messages do not repeat in a regular period, or fewer than three times"
    of = job(ranks=2)
    return replace(
        of, **{"ranks": unknown, "iterations": None, "iterations_reason": reason} | changes
    )
