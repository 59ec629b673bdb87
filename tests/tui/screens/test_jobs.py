"""The screen of training jobs: hand-made steps, and the packets of a step of a real capture."""

from __future__ import annotations

from dataclasses import replace

import factories_results as factories
import msgspec
import pytest
import training_jobs as made
from captures import data
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from training_jobs import MS
from tui_driver import Still, drive, each, text_of

from rocescope.report.jobs import begin_of
from rocescope.tui.clock import Clock
from rocescope.tui.screens.jobs import (
    columns_of,
    gantt,
    listed,
    network,
    ranks_shown,
    sender_of,
    span_of,
    step_cells,
)
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.snapshot import Snapshot, SourceState

SIZES = [(80, 24), (160, 45)]


def still(*jobs, **changes):
    judged = Judged(diagnosis=factories.diagnosis(), why="", jobs=jobs, **changes)
    source = SourceState("job.pcap", "capture", running=False, frames=9, packets=9)
    return Still(source, Snapshot(source, judged=judged, start_ns=factories.START_NS))


def shown(*jobs, keys=(), size=(80, 24)):
    return drive([], ["J", *keys], size, text_of, session=still(*jobs))


@pytest.mark.parametrize("size", SIZES)
def test_steps_and_the_ranks_of_the_step_under_the_cursor(size):
    lines = shown(made.straggling(), size=size)
    assert "Job a: 10.1.1.10 and 3 more, ring of 4: 8 steps of 30.0 ms (median)" in lines[2]
    row = next(line for line in lines if line.startswith("▌")).split()
    assert row[1] == "3" and row[3:8] == ["40.0", "ms", "▲", "+33", "%"]
    assert "rank 2 10.1.3.10" in " ".join(row)
    chart = {line.split()[1]: line for line in lines if line.lstrip().startswith("rank ")}
    assert set(chart) == {"0", "1", "2", "3"}
    assert "▲" in chart["2"] and "░" not in chart["2"]
    assert "░" in chart["0"] and "▲" not in chart["0"] and chart["0"].rstrip().endswith("10.0 ms")
    assert all("█" in line and "·" in line for line in chart.values())
    legend = next(line for line in lines if "computing or idle" in line)
    assert "█ sending" in legend and "░ waiting for the last rank" in legend
    assert any("the others waited for rank 2 (10.1.3.10)" in line for line in lines)
    assert "n next job" not in lines[-1] and "enter deeper" in lines[-1]


def test_the_chart_has_a_line_per_rank_and_follows_the_cursor():
    before, after = each([], ["J"], ["up"], look=text_of, session=still(made.straggling()))
    assert any("step 3" in line for line in before)
    assert any("step 2" in line for line in after)
    assert not any(line.lstrip().startswith("rank 2") and "▲" in line for line in after)


def test_several_jobs_are_one_key_away():
    job, other = made.job(), msgspec.structs.replace(made.straggling(), id=1, name="b")
    first, second, third, last = each(
        [],
        ["J"],
        ["n"],
        ["n"],
        ["N"],
        look=text_of,
        session=still(made.no_iterations(), job, other),
    )
    assert "Job a (1 of 3)" in first[2] and "n next job" in first[-1]
    assert "Job b (2 of 3)" in second[2]
    assert "No training job (3 of 3): 10.1.1.10 and 1 more" in third[2]
    assert any("No iterations: its messages do not repeat" in line for line in third)
    assert any("n N  show the other jobs" in line for line in third)
    assert "enter deeper" not in third[-1]
    assert "Job b (2 of 3)" in last[2]


def test_nothing_says_why():
    lines = shown()
    assert "No RoCE packet in 9 frames." in lines[2]
    assert any("no flow carries the messages of one" in line for line in lines)
    assert "enter deeper" not in lines[-1] and "next job" not in lines[-1]
    waiting = Snapshot(SourceState("x", "capture"), judged=Judged())
    lines = drive([], ["J"], (80, 24), text_of, session=Still(SourceState("x", "capture"), waiting))
    assert any("The diagnosis is not ready yet." in line for line in lines)


def test_a_hang_is_said():
    lines = shown(made.hanging(), size=(160, 45))
    assert any("rank 3 (10.1.4.10) neither sends nor grants" in line for line in lines)
    assert any("1 channel, 1 queue pair per connection, slots of 32 KiB" in line for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_many_ranks_show_the_one_that_is_waited_for(size):
    lines = shown(made.job(ranks=64, late={3: 50}), size=size)
    assert any(line.lstrip().startswith("rank 50") and "▲" in line for line in lines)
    assert any("ranks not shown" in line for line in lines)


def test_steps_beyond_the_kept_ones_say_so():
    job = made.job()
    steps = [msgspec.structs.replace(step, ranks=[]) for step in job.iterations.steps]
    iterations = msgspec.structs.replace(job.iterations, steps=steps)
    text = gantt(job, iterations.steps[1], 78, 8, Clock(factories.START_NS)).plain
    assert "kept for the newest and the longest steps only" in text


def test_enter_shows_the_packets_of_the_step():
    """The step covers the second half of the capture: only its packets are shown."""

    def with_job(app):
        snapshot = app.view.snapshot
        flow = int(snapshot.flows.wire_bytes.argmax())
        src = snapshot.key(flow).src
        first, last = int(snapshot.flows.first_ns[flow]), int(snapshot.flows.last_ns[flow])
        middle = (first + last) // 2
        step = made.job().iterations.steps[1]
        rank = msgspec.structs.replace(
            step.ranks[0], address=src, first_data_ns=middle, last_data_ns=last, sends=[]
        )
        step = msgspec.structs.replace(
            step, index=0, last_message_ns=last, duration_ns=last - middle, ranks=[rank]
        )
        job = made.job(
            flows=[flow], iterations=made.iterations([step]), name="x", addresses=[src, "y"]
        )
        judged = replace(snapshot.judged, jobs=[job])
        app.view.snapshot = replace(snapshot, judged=judged)
        app.screen.redraw()

    def look(app):
        return text_of(app), app.screen.packets

    keys = ["J", with_job, "enter"]
    lines, packets = drive([data("i03_write_reorder5_AtoB.atB")], keys, (80, 24), look)
    assert "of step 0 of job x (l shows all)" in " ".join(lines[2:4])
    times = packets.table.time_ns
    lines, everything = drive([data("i03_write_reorder5_AtoB.atB")], [*keys, "l"], (80, 24), look)
    whole = everything.table.time_ns
    assert 0 < len(packets) < len(everything)
    assert int(times[0]) > int(whole[0])


# The states of ranks by column, without an app.


def test_every_column_has_the_state_that_lasts_longest():
    step = made.straggling().iterations.steps[4]
    late, other = step.ranks[2], step.ranks[0]
    # 40 ms in 20 columns of 2 ms.
    assert columns_of(step, late, 20) == (
        ["computing"] * 8 + ["sending"] + ["computing"] * 4 + ["waited for"] * 5 + ["sending"] * 2
    )
    assert columns_of(step, other, 20)[13:18] == ["waiting"] * 5
    assert columns_of(step, msgspec.structs.replace(other, sends=[None, other.sends[1]]), 4)[-1]


def test_a_short_burst_stays_visible():
    step = made.job().iterations.steps[1]
    short = msgspec.structs.replace(step.ranks[0].sends[0], until_ns=begin_of(step) + 18 * MS)
    rank = msgspec.structs.replace(step.ranks[0], sends=[short])
    assert columns_of(step, rank, 6)[3] == "sending"  # 2 of 5 ms


@given(st.integers(1, 200), st.integers(0, 7))
def test_columns_are_as_many_as_asked(columns, index):
    step = made.straggling().iterations.steps[index]
    for rank in step.ranks:
        assert len(columns_of(step, rank, columns)) == columns


@pytest.mark.parametrize("width", [40, 60, 78, 158])
def test_the_chart_fits(width):
    job = made.straggling()
    text = gantt(job, job.iterations.steps[4], width, 8, Clock(factories.START_NS))
    lines = text.plain.splitlines()
    assert len(lines) == 1 + 4 + 2
    assert all(cell_len(line) <= width for line in lines[1:5])


def test_ranks_around_the_late_one():
    job = made.job(ranks=10, late={1: 9})
    steps = job.iterations.steps
    assert [one.address for one in ranks_shown(job, steps[1], 3)] == [
        made.address(rank) for rank in (7, 8, 9)
    ]
    assert [one.address for one in ranks_shown(job, steps[0], 3)] == [
        made.address(rank) for rank in (0, 1, 2)
    ]


def test_the_packets_of_a_step_are_those_of_the_late_rank():
    step = made.straggling().iterations.steps[4]
    assert sender_of(step) == made.address(2)
    assert span_of(step) == (begin_of(step), step.last_message_ns)
    assert sender_of(msgspec.structs.replace(step, waited_for_address=None)) == made.address(0)
    assert sender_of(msgspec.structs.replace(step, waited_for_address=None, ranks=[])) is None


def test_jobs_before_other_traffic():
    assert [job.name for job in listed([made.no_iterations(name="x"), made.job()])] == ["a", "x"]


def test_cells():
    job = made.job()
    first, second = job.iterations.steps[:2]
    assert step_cells(job, first, Clock(factories.START_NS))[2] == ("?", "")
    cells = step_cells(job, second, Clock(factories.START_NS))
    assert cells[0] == "1" and cells[3] == "0 %" and cells[5] == ("-", "dim")
    assert network(second) == "10.0 to 20.0 %"
    assert network(msgspec.structs.replace(second, network_ns=3 * MS)) == "10.0 %"
    assert network(msgspec.structs.replace(second, network_low_ns=None)) == "?"
