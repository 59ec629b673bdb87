"""Recorded collectives beside the steps of jobs: order, number, hangs, contradictions."""

import json

import pytest
from msgspec.structs import replace
from recorded_jobs import (
    START_NS,
    STEP_NS,
    collective,
    dump,
    entry,
    header,
    metadata,
    write_dumps,
)

from rocescope.analyzer.jobs.beside import job_records
from rocescope.analyzer.jobs.flight_recorder import read_flight_recorder
from rocescope.analyzer.jobs.inspector import read_inspector
from rocescope.analyzer.jobs.records import Recorded
from rocescope.analyzer.results.jobs import (
    Hang,
    Iterations,
    JobEpoch,
    JobRank,
    JobStep,
    MissingRank,
    Straggler,
    TrainingJob,
)

_PARTS = (  # of a step: when a call begins, its name, its elements
    (0.0, "nccl:_all_gather_base", 4_096),
    (0.3, "nccl:_reduce_scatter_base", 8_192),
    (0.9, "nccl:all_reduce", 1),
)


def _job(steps=10, *, id=0, first=0, boundary="marker", hang=None, stragglers=(), ended="end"):
    """Steps `first` to `first + steps - 1` of STEP_NS, of four ranks."""
    ends = [START_NS + (first + n + 1) * STEP_NS for n in range(steps)]
    addresses = [f"10.1.{rank}.11" for rank in range(4)]
    return TrainingJob(
        id=id,
        name="ab"[id],
        addresses=addresses,
        ranks=[JobRank(address, rank, None, "grant") for rank, address in enumerate(addresses)],
        flows=[],
        groups=[],
        epochs=[JobEpoch(ends[0] - STEP_NS, ends[-1] + 1_000, ended)],
        iterations=Iterations(
            messages_per_step=48,
            period_p50_ns=float(STEP_NS),
            period_p5_ns=STEP_NS * 0.99,
            period_p95_ns=STEP_NS * 1.01,
            boundary=boundary,
            steps=[
                JobStep(
                    index=n, epoch=0, first_message_ns=end - STEP_NS // 2, last_message_ns=end,
                    duration_ns=STEP_NS, waited_ns=0, waited_for=None, waited_for_address=None,
                    network_low_ns=None, network_high_ns=None, network_ns=None,
                    payload_bytes=1 << 20, collectives=None,
                )
                for n, end in enumerate(ends)
            ],
        ),
        iterations_reason=None,
        hang=hang,
        stragglers=list(stragglers),
    )  # fmt: skip


def _calls(steps, *, first=0, clock_ns=0, parts=_PARTS, period=STEP_NS):
    """Complete collectives of some steps, as one rank records them."""
    return [
        entry(
            (first + step) * len(parts) + place + 1,
            record_id=step * len(parts) + place,
            name=name,
            sizes=((elements,),),
            created_ns=START_NS + clock_ns + round((first + step + start) * period),
        )
        for step in range(steps)
        for place, (start, name, elements) in enumerate(parts)
    ]


def _waiting(calls, **more):
    last = calls[-1]["collective_seq_id"]
    created = calls[-1]["time_created_ns"] + STEP_NS // 10
    return entry(
        last + 1, name=_PARTS[0][1], sizes=((_PARTS[0][2],),), state="scheduled",
        record_id=calls[-1]["record_id"] + 1, created_ns=created, **more,
    )  # fmt: skip


def _records(folder, by_rank, *jobs):
    recorded = Recorded()
    read_flight_recorder(write_dumps(folder, by_rank), recorded)
    return job_records(recorded, list(jobs))


def _beside(folder, by_rank, *jobs):
    (part,) = _records(folder, by_rank, *jobs).beside
    return part


def _all(calls):
    return {rank: dump(calls) for rank in range(4)}


@pytest.mark.parametrize("clock_ns", [0, 8_000_000, -3_000_000_000])
def test_as_many_steps_belong_together_whatever_the_clocks_say(tmp_path, clock_ns):
    part = _beside(tmp_path, _all(_calls(10, clock_ns=clock_ns)), _job())
    assert (part.matched_by, part.collectives_per_step) == ("count", 3)
    assert [(s.step, s.first_sequence, s.last_sequence) for s in part.steps] == [
        (n, 3 * n + 1, 3 * n + 3) for n in range(10)
    ]
    assert part.steps[0].operations == {
        "_all_gather_base": 1, "_reduce_scatter_base": 1, "all_reduce": 1,
    }  # fmt: skip
    assert part.clock_offset_ns == clock_ns - STEP_NS // 10
    assert part.contradictions == part.notes == []


@pytest.mark.parametrize(("first", "steps"), [(0, 10), (4, 10), (7, 20)])
def test_a_part_of_the_steps_is_matched_by_clocks(tmp_path, first, steps):
    part = _beside(tmp_path, _all(_calls(40, clock_ns=4_000_000)), _job(steps, first=first))
    assert part.matched_by == "clocks"
    assert [(s.step, s.first_sequence) for s in part.steps] == [
        (n, 3 * (first + n) + 1) for n in range(steps)
    ]
    assert any("by the clocks of hosts and capture" in note for note in part.notes)


def test_a_buffer_that_begins_within_a_step(tmp_path):
    calls = _calls(20)[40:]
    part = _beside(tmp_path, _all(calls), _job(20))
    assert [(s.step, s.first_sequence, s.last_sequence) for s in part.steps] == [
        (n, 3 * n + 1, 3 * n + 3) for n in range(14, 20)
    ]


def test_calls_of_one_kind_belong_to_steps_by_their_number_per_period(tmp_path):
    alike = tuple((start, "nccl:all_reduce", 4_096) for start in (0.0, 0.2, 0.3, 0.4))
    calls = _calls(10, parts=alike)
    part = _beside(tmp_path, _all(calls), _job(boundary="longest_idle"))
    assert part.collectives_per_step == 4
    assert [(s.first_sequence, s.last_sequence) for s in part.steps][:2] == [(1, 4), (5, 8)]
    assert any("longest pause" in note for note in part.notes)


def test_another_period_is_another_job(tmp_path):
    by_rank = _all(_calls(10, period=STEP_NS * 1.4))
    assert _records(tmp_path, by_rank, _job()).beside == []
    irregular = [
        entry(n, record_id=n - 1, sizes=((n * n % 97 + 1,),), created_ns=START_NS + n * STEP_NS)
        for n in range(1, 31)
    ]
    assert _records(tmp_path, _all(irregular), _job()).beside == []


def test_records_of_another_time_are_not_matched(tmp_path):
    part = _beside(tmp_path, _all(_calls(30, clock_ns=86_400_000_000_000)), _job())
    assert (part.matched_by, part.steps, part.clock_offset_ns) == (None, [], None)
    assert part.notes == ["the records are of another time than the packets, by their clocks"]


def test_ranks_that_the_group_does_not_have_exclude_it(tmp_path):
    calls = _calls(10)
    by_rank = {rank: dump(calls, ranks=[0, 1]) for rank in (0, 1)}
    assert _records(tmp_path, by_rank, _job()).beside == []


def test_two_jobs_that_fit_get_no_records(tmp_path):
    records = _records(tmp_path, _all(_calls(10)), _job(), _job(id=1))
    assert records.beside == []
    assert records.notes == ["group 0 fits 2 jobs in the packets: not joined with any"]


_LAST_NS = START_NS + 10 * STEP_NS
_HANG = Hang(_LAST_NS, None, [MissingRank("10.1.2.11", 2)])


def _hanging(missing=2, steps=14, **more):
    calls = _calls(steps)
    waiting = _waiting(calls, **more)
    return {rank: dump([*calls, *[waiting] * (rank != missing)]) for rank in range(4)}


def test_both_ends_of_a_hang_are_one_time(tmp_path):
    """The records have four steps more than the packets, all before these."""
    part = _beside(tmp_path, _hanging(), _job(hang=_HANG))
    assert part.matched_by == "end"
    assert [s.last_sequence for s in part.steps] == [3 * n for n in range(5, 15)]
    assert part.agreements == [
        "records: rank 2 did not call _all_gather_base 43; packets: rank 2 (10.1.2.11) is missing"
    ]
    assert part.contradictions == []


def test_calls_far_ahead_of_the_hang(tmp_path):
    """Ranks that wait may have called more: the first incomplete collective is the end."""
    calls = _calls(14)
    for call in calls[-5:]:
        call |= {"state": "scheduled", "time_discovered_completed_ns": None, "retired": False}
    by_rank = {rank: dump(calls if rank != 2 else calls[:-5]) for rank in range(4)}
    part = _beside(tmp_path, by_rank, _job(hang=_HANG))
    assert part.steps[-1].last_sequence == 36  # of 37 that are complete
    assert part.agreements[0].startswith("records: rank 2 did not call _reduce_scatter_base 38")


def test_the_other_rank_is_a_contradiction(tmp_path):
    part = _beside(tmp_path, _hanging(missing=1), _job(hang=_HANG))
    assert part.contradictions == [
        "records: rank 1 did not call _all_gather_base 43; packets: rank 2 (10.1.2.11) is missing"
    ]
    part = _beside(tmp_path, _hanging(missing=None), _job(hang=_HANG))
    assert part.contradictions == [
        "packets: rank 2 (10.1.2.11) is missing; records: all ranks called _all_gather_base 43,"
        " none completed it"
    ]


def test_a_rank_that_only_one_source_knows_is_no_contradiction(tmp_path):
    unnamed = replace(_HANG, missing=[MissingRank("10.1.2.11", None)])
    part = _beside(tmp_path, _hanging(missing=1), _job(hang=unnamed))
    assert part.agreements == part.contradictions == []
    assert any("do not show which rank" in note for note in part.notes)
    by_rank = _hanging()
    del by_rank[2]
    (tmp_path / "nccl_trace_rank_2").unlink()
    part = _beside(tmp_path, by_rank, _job(hang=_HANG))
    assert part.agreements == part.contradictions == []


def test_a_complete_job_that_the_packets_see_hanging(tmp_path):
    part = _beside(tmp_path, _all(_calls(200)), _job(hang=_HANG))
    (text,) = part.contradictions
    assert text.startswith("packets: the job stops and its queue pairs do not go on; records: all")
    part = _beside(tmp_path, _all(_calls(10)), _job(hang=_HANG))
    assert part.contradictions == []
    assert part.notes == ["the records end before the hang that the packets show"]


def test_a_collective_in_flight_is_no_hang(tmp_path):
    """Ranks write their records at slightly different times: the packets go on."""
    part = _beside(tmp_path, _hanging(), _job(100))
    assert part.contradictions == []
    assert any("was in flight when the records were written" in note for note in part.notes)
    part = _beside(tmp_path, _hanging(retired=True), _job(100))
    assert part.contradictions == [
        "records: _all_gather_base 43 timed out; packets: the job goes on after it was called"
    ]


def test_a_hang_before_a_restart_and_one_that_goes_on(tmp_path):
    returns = replace(_HANG, until_ns=_LAST_NS + 400_000_000)
    job = _job(hang=returns, ended="restart")
    job = replace(job, epochs=[replace(job.epochs[0], until_ns=_LAST_NS)])
    part = _beside(tmp_path, _hanging(retired=True), job)
    assert (part.matched_by, len(part.agreements), part.contradictions) == ("end", 1, [])
    part = _beside(tmp_path, _hanging(retired=True), _job(hang=returns, ended="silence"))
    assert part.contradictions == [
        "records: _all_gather_base 43 timed out; packets: the job stops, then its queue pairs go on"
    ]


def _straggler(rank):
    return Straggler(
        address=f"10.1.{rank}.11", rank=rank, from_step=0, until_step=9, wait_ns=1,
        cause="late_data", confidence="likely",
    )  # fmt: skip


@pytest.mark.parametrize("late", [2, 3])
def test_who_is_waited_for_in_both(tmp_path, late):
    by_rank = {
        rank: dump([c | {"duration_ms": 0.5 if rank == late else 4.0} for c in _calls(10)])
        for rank in range(4)
    }
    part = _beside(tmp_path, by_rank, _job(stragglers=[_straggler(2)]))
    text = f"records: rank {late} enters collectives last; packets: rank 2 is waited for"
    assert (part.agreements if late == 2 else part.contradictions) == [text]


def test_inspector_beside_packets(tmp_path):
    """It numbers each operation on its own; lines come in the order of their ends."""
    for rank in range(4):
        lines = []
        for step in range(10):
            for start, name, size in ((0.1, "AllGather", 4_096), (0.9, "AllReduce", 4)):
                end_us = (START_NS + round((step + start) * STEP_NS)) // 1_000
                lines.append(json.dumps({
                    "header": header(rank),
                    "metadata": metadata(f"node{rank}", 100 + rank, end_us),
                    "coll_perf": collective(step, 50, name, size),
                }))  # fmt: skip
        (tmp_path / f"node{rank}-pid{100 + rank}.log").write_text("\n".join(lines) + "\n")
    recorded = Recorded()
    read_inspector(tmp_path, recorded)
    (part,) = job_records(recorded, [_job()]).beside
    assert (part.matched_by, part.collectives_per_step) == ("count", 2)
    assert [(s.first_sequence, s.operations) for s in part.steps] == [
        (None, {"AllGather": 1, "AllReduce": 1})
    ] * 10
    assert part.clock_offset_ns == -STEP_NS // 10


def test_jobs_without_steps_get_nothing(tmp_path):
    job = replace(_job(), iterations=None, iterations_reason="irregular")
    assert _records(tmp_path, _all(_calls(10)), job).beside == []
    for calls in ([], _calls(1)):
        folder = tmp_path / str(len(calls))
        assert _records(folder, _all(calls), _job()).beside == []
