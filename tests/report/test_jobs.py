"""Training jobs in words, in the report, on HTML pages, and what their ranks do in a step."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import factories_results as factories
import pytest
import training_jobs as made
from factories_results import START_NS
from hostile_texts import MARKUP
from html_checks import checked
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from training_jobs import LATE, MS, STEP
from training_runs import training_run

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.jobs import JobCost, JobEpoch, JobRank, TrainingJob
from rocescope.report.files.tables import encode_records, step_columns, step_rows
from rocescope.report.html.analysis_charts import (
    MOST_RANKS,
    MOST_STEPS,
    ranks_in_steps,
    shown_steps,
)
from rocescope.report.html.documents import analysis_html
from rocescope.report.jobs import begin_of, heading, in_order, intervals, sentences, training
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.report import Report


def analysis(*jobs: TrainingJob, **changes: object) -> Analysis:
    return factories.analysis(jobs=list(jobs), **changes)


def section(of: Analysis, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    """The section of the report; empty without it."""
    sink = io.StringIO()
    monkeypatch.setenv("COLUMNS", str(width))
    Report(of, page_on(sink)).print()
    text = sink.getvalue()
    return "" if "\nJOBS" not in text else text[text.index("\nJOBS") + 1 :].partition("\n\n")[0]


def said(job: TrainingJob, **changes: object) -> str:
    return " | ".join(each.text for each in sentences(job, analysis(job, **changes)))


# The section of the report.


def test_who_is_waited_for_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    other = made.job(id=1, name="b")
    assert section(analysis(made.straggling(), other), monkeypatch).splitlines() == [
        "JOBS  2 training jobs, 4 ranks each",
        "a 10.1.1.10 and 3 more, ring of 4: 8 steps of 30.0 ms (median), 96 messages each",
        "▲ steps 3 to 5 took 40.0 ms: the others waited for rank 2 (10.1.3.10); cost:",
        "  30.0 ms in 3 steps; its data comes late and then at full speed, its grants",
        "  come on time: likely the GPU or its kernels, not the network",
        "· the network costs between 10 % and 20 % of a step: how much of it hides behind",
        "  computing does not show in packets",
        "b 10.1.1.10 and 3 more, ring of 4: 8 steps of 30.0 ms, all within 1 %, 96",
        "  messages each",
        "· the network costs between 10 % and 20 % of a step: how much of it hides behind",
        "  computing does not show in packets; nobody is waited for",
        "ranks are from NCCL's grants; traffic inside hosts is not captured",
    ]


def test_it_comes_first_after_the_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.StringIO()
    Report(analysis(made.job()), page_on(sink)).print()
    text = sink.getvalue()
    assert text.index("DIAGNOSIS") < text.index("JOBS") < text.index("FLOWS")
    sink = io.StringIO()
    Report(analysis(made.job()), page_on(sink), brief=True).print()
    assert "JOBS" not in sink.getvalue()


def test_hang_and_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = section(analysis(made.hanging()), monkeypatch).splitlines()
    assert lines[3:7] == [
        "✗ stops within a step at 0.150 s for 400 ms: rank 3 (10.1.4.10) neither sends",
        "  nor grants; ranks 0, 1 and 2 wait",
        "· restarts with new queue pairs at 0.550 s: 400 ms lost, the time of 13 steps",
        "· the network costs between 10 % and 20 % of a step: how much of it hides behind",
    ]
    assert said(made.hanging(returns=False)).split(" | ")[1:3] == [
        "stops within a step at 0.150 s: rank 3 (10.1.4.10) neither sends nor grants; ranks 0, 1"
        " and 2 wait",
        "it does not return before the end of the capture",
    ]


def test_a_hang_of_an_unknown_rank_names_none() -> None:
    hang = made.hanging().hang
    assert hang is not None
    text = said(replace(made.hanging(), hang=replace(hang, missing=[])))
    assert "which rank is missing does not show" in text and "neither" not in text


def test_many_missing_ranks() -> None:
    job = made.hanging()
    assert job.hang is not None
    missing = [replace(job.hang.missing[0], address=made.address(n), rank=n) for n in range(5)]
    job = replace(job, ranks=[*job.ranks, JobRank("10.9.9.9", None, None, None)],
                  hang=replace(job.hang, missing=missing))  # fmt: skip
    text = said(job)
    assert "rank 2 (10.1.3.10) and 2 more neither send nor grant; 1 other waits" in text


def test_slow_transfers_name_the_finding_that_explains_them() -> None:
    slow = made.straggling(cause="slow_transfers")
    assert "transfers of rank 2 (10.1.3.10) took longer" in said(slow)
    assert "network or NIC" in said(slow)
    diagnosis = factories.analysis().diagnosis
    cost = JobCost(0, 3, 5, STEP, 3 * LATE)
    first, *rest = diagnosis.findings
    diagnosis = replace(diagnosis, findings=[replace(first, job_cost=[cost]), *rest])
    text = said(slow, diagnosis=diagnosis)
    assert f"30.0 ms in 3 steps; {first.kind}, see the diagnosis" in text
    assert "network or NIC" not in text
    text = said(replace(slow, stragglers=[]), diagnosis=diagnosis)
    assert f"steps 3 to 5 took 40.0 ms, 30.0 ms more than before: {first.kind}, see" in text


def test_single_slow_steps_are_said() -> None:
    """They are no straggler, whose steps are neighbours, or nothing explains them."""
    text = said(made.job(late={2: 1, 6: 1}))
    assert "steps 2, 6 took up to 40.0 ms: the others waited for rank 1 (10.1.2.10)" in text
    assert "nobody is waited for" not in text
    job = made.job(late={2: 1})
    assert "step 2 took 40.0 ms: the others waited for rank 1" in said(job)
    unknown = [replace(step, waited_for=None, waited_for_address=None)
               for step in job.iterations.steps]  # fmt: skip
    job = replace(job, iterations=replace(job.iterations, steps=unknown))
    assert "step 2 took 40.0 ms: the packets do not show why" in said(job)


def test_exact_share_of_the_network_and_unknown_waits() -> None:
    job = made.job()
    assert job.iterations is not None
    steps = [replace(step, network_ns=3 * MS, waited_ns=None) for step in job.iterations.steps]
    text = said(replace(job, iterations=replace(job.iterations, steps=steps)))
    assert text.endswith("the network costs 10 % of a step")
    steps = [replace(step, network_low_ns=None) for step in job.iterations.steps]
    text = said(replace(job, iterations=replace(job.iterations, steps=steps)))
    assert "what the network costs does not show; nobody is waited for" in text
    text = said(replace(job, iterations=replace(job.iterations, boundary="convention")))
    assert "only the durations are claimed" in text


def test_no_iterations_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    named = made.no_iterations(ranks=[JobRank("10.1.1.10", 0, None, "log")])
    assert "no iterations: its messages do not repeat" in said(named)
    assert section(analysis(named), monkeypatch).splitlines()[-1] == (
        "ranks are from the logs; traffic inside hosts is not captured"
    )
    assert section(analysis(made.no_iterations()), monkeypatch) == ""
    assert section(analysis(), monkeypatch) == ""


def test_headings() -> None:
    assert heading([made.job()]) == "1 training job, 4 ranks"
    assert heading([made.job(), made.job(ranks=2)]) == "2 training jobs, 2 to 4 ranks"
    hosts = [JobRank("10.1.1.10", 0, "n1", "log"), JobRank("10.1.2.10", 1, "n2", "log")]
    both = [made.job(ranks=2), made.job(ranks=2)]
    both = [replace(job, ranks=hosts) for job in both]
    assert heading(both) == "2 training jobs, 2 ranks each, on the same 2 hosts"
    assert training([made.no_iterations()]) == []


def test_a_job_that_is_silent_for_a_while_has_not_restarted() -> None:
    epochs = [JobEpoch(START_NS, START_NS + MS, "silence"),
              JobEpoch(START_NS + 601 * MS, START_NS + 900 * MS, "end")]  # fmt: skip
    assert "goes on at 0.601 s: 600 ms lost, the time of 20 steps" in said(made.job(epochs=epochs))


@given(st.just(MARKUP) | st.text(max_size=30), st.integers(20, 120))
def test_names_from_outside_steer_nothing(text: str, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        job = replace(made.straggling(), name=text, addresses=[text, "b"],
                      ranks=[JobRank(text, 1, text, "log")])  # fmt: skip
        shown = section(analysis(job), patch, width)
    assert all(char == "\n" or char.isprintable() for char in shown)
    checked(analysis_html(analysis(job)))


def test_a_generated_run_from_its_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 computes longer in steps 4 to 6: the truth of the run, and the report on its pcap."""
    run = training_run(
        ("job:kind=ddp,ranks=4,steps=8,size=256KiB,compute=20ms",),
        ("slow-gpu:rank=2,from=4,until=7,factor=1.4",),
    )
    (truth,) = run.truth["jobs"]
    path = tmp_path / "run.pcap"
    path.write_bytes(b"".join(run.pcap(run.at_all_taps(), 128)))
    found = analyze([str(path)], AnalyzeOptions())
    text = " ".join(section(found, monkeypatch).split())
    late = next(rank["address"] for rank in truth["ranks"] if rank["rank"] == 2)
    assert "JOBS 1 training job, 4 ranks" in text and "ring of 4: 8 steps" in text
    assert "steps 4 to 6 took" in text and f"the others waited for rank 2 ({late})" in text
    (job,) = found.jobs
    assert job.iterations is not None
    for step, true in zip(job.iterations.steps, truth["steps"], strict=True):
        assert {rank.address for rank in step.ranks} == {rank["address"] for rank in truth["ranks"]}
        ends = [rank.last_data_ns for rank in step.ranks]
        assert max(end for end in ends if end is not None) == true["last_message_ns"]
        for rank in step.ranks:
            late_here = any(part.state == "waited for" for part in intervals(step, rank))
            assert late_here == (step.index in (4, 5, 6) and rank.address == late)


# What each rank does in a step.


def test_states_of_the_ranks() -> None:
    step = made.straggling().iterations.steps[4]
    begin = begin_of(step)
    states = {
        rank.address: [(part.from_ns - begin, part.until_ns - begin, part.state)
                       for part in intervals(step, rank)]
        for rank in step.ranks
    }  # fmt: skip
    assert [(a / MS, b / MS, state) for a, b, state in states[made.address(0)]] == [
        (0, 16, "computing"), (16, 18, "sending"), (18, 26, "computing"),
        (26, 36, "waiting"), (36, 40, "sending"),
    ]  # fmt: skip
    assert [(a / MS, b / MS, state) for a, b, state in states[made.address(2)]] == [
        (0, 16, "computing"), (16, 18, "sending"), (18, 26, "computing"),
        (26, 36, "waited for"), (36, 40, "sending"),
    ]  # fmt: skip


def test_without_collectives_only_the_first_and_last_data_are_known() -> None:
    step = made.job().iterations.steps[1]
    rank = replace(step.ranks[0], sends=[])
    assert [part.state for part in intervals(step, rank)] == ["computing", "sends within"]
    assert intervals(step, replace(rank, first_data_ns=None, last_data_ns=None)) == []
    holes = replace(rank, sends=[None, step.ranks[0].sends[1]])
    assert [part.state for part in intervals(step, holes)] == ["computing", "sending"]


@given(st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=5), st.booleans())
def test_intervals_follow_each_other(times: list[tuple[int, ...]], late: bool) -> None:
    """Whatever the times, also of clocks that differ."""
    step = made.step(1, START_NS, late=2 if late else None)
    sends = [
        replace(step.ranks[0].sends[0], from_ns=START_NS + a * MS, until_ns=START_NS + (a + b) * MS,
                waited_ns=c * MS)
        for a, b, c in times
    ]  # fmt: skip
    rank = replace(step.ranks[2], sends=sends)
    parts = intervals(step, rank)
    assert all(part.until_ns > part.from_ns for part in parts)
    assert all(a.until_ns == b.from_ns for a, b in pairwise(parts))


def test_ranks_are_in_their_order() -> None:
    job = made.job(ranks=12)
    step = replace(job.iterations.steps[0], ranks=job.iterations.steps[0].ranks[::-1])
    assert [rank.address for rank in in_order(job, step)] == [made.address(n) for n in range(12)]


# The chart of the HTML report.


def test_chart_of_the_ranks() -> None:
    job = made.straggling()
    chart = ranks_in_steps(job, analysis(job))
    assert chart is not None
    assert chart.columns == (
        "step", "rank", "address", "computing, ms", "sending, ms", "waiting, ms", "waited for, ms",
    )  # fmt: skip
    numbers = {(row[0], row[1]): row[3:] for row in chart.rows}
    assert numbers[4, "rank 2"] == (24, 6, 0, 10)
    assert numbers[4, "rank 0"] == (24, 6, 10, 0)
    assert chart.svg().count('class="span"') == 3 + 1  # of three steps, and of the legend
    words = checked(analysis_html(analysis(job)))
    assert "Jobs1 training job, 4 ranks" in words and "Ranks of job a in steps 0 to 7" in words


def test_the_chart_shows_the_steps_around_the_wait() -> None:
    job = made.job(count=40, late={30: 1})
    assert [step.index for step in shown_steps(job)] == [*range(26, 26 + MOST_STEPS)]
    one = made.straggling().stragglers[0]
    job = replace(job, stragglers=[replace(one, from_step=20, until_step=20)])
    assert [step.index for step in shown_steps(job)] == [*range(18, 18 + MOST_STEPS)]
    chart = ranks_in_steps(job, analysis(job))
    assert chart is not None and chart.left_out == "32 steps not shown."


def test_ranks_beyond_the_picture_are_counted() -> None:
    job = made.job(ranks=MOST_RANKS + 3)
    chart = ranks_in_steps(job, analysis(job))
    assert chart is not None and chart.left_out == "3 ranks not shown."


def test_no_chart_without_what_ranks_do() -> None:
    job = made.job()
    assert job.iterations is not None
    steps = [replace(step, ranks=[]) for step in job.iterations.steps]
    job = replace(job, iterations=replace(job.iterations, steps=steps))
    assert ranks_in_steps(job, analysis(job)) is None
    assert ranks_in_steps(made.no_iterations(), analysis()) is None


# The table of steps.


def test_steps_as_a_table() -> None:
    jobs = [made.straggling(), made.no_iterations(id=1), made.job(id=2, name="=b", count=2)]
    lines = encode_records(step_columns(), step_rows(jobs), "csv").decode().splitlines()
    assert lines[0].startswith("job,job_name,index,epoch,first_message_ns,last_message_ns,duration")
    assert "ranks" not in lines[0]
    assert len(lines) == 1 + 8 + 2
    row = dict(zip(lines[0].split(","), lines[5].split(","), strict=True))
    assert (row["index"], row["duration_ns"], row["waited_for"]) == ("4", str(STEP + LATE), "2")
    assert lines[-1].startswith("2,'=b,1,")
