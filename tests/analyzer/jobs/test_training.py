"""Training jobs: their steps, who is waited for, hangs, and what the network costs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from rocescope.analyzer.jobs.steps import (
    Edge,
    bundles_of,
    groups_of,
    idle_times,
    rhythm_of,
    shape_of,
)
from rocescope.analyzer.jobs.training import Sources, training_jobs
from rocescope.analyzer.jobs.waiting import judge, on_wire, timeline, usual_of
from rocescope.analyzer.measures.messages import MESSAGE, GrantNames, MessageLog
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.track.state import FLOW

from ...lab.job_runs import make, score_run
from ...lab.job_score import score

RUNS = Path(__file__).parents[2] / "data" / "jobs"
MS = 1_000_000


def analyzed(*captures: Path, **options: Any) -> Analysis:
    return analyze([str(path) for path in sorted(captures)], AnalyzeOptions(**options))


def of_run(name: str) -> Analysis:
    (folder,) = RUNS.glob(f"{name}*")
    return analyzed(*folder.glob("*.pcap.zst"))


# --- runs with a truth --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h1", "h2", "h3", "h4", "h5", "h6"])
def test_runs_with_truth(name: str) -> None:
    """Jobs, ranks, steps, stragglers, hangs, costs and the network's part, by the truth."""
    (folder,) = RUNS.glob(f"{name}*")
    truth = json.loads((folder / "truth.json").read_text())
    result = to_builtins(of_run(name))
    checks = score(name, truth, result).checks
    assert {name: check.problems for name, check in checks.items() if check.problems} == {}
    assert checks["jobs"].of and checks["ranks"].of and checks["durations"].of


@pytest.mark.parametrize(
    ("number", "judged"),
    [
        (207, {"network", "cost"}),  # a congested link, named by its tap
        (124, {"network", "cost"}),  # a NIC, seen at uplinks only
        (122, {"straggler", "boundaries"}),  # a late launch, and a rank that waits for its grants
        (106, {"hang"}),  # beside another job that goes on
        (149, {"hang"}),  # a rank that grants nothing, either
        (170, {"jobs", "durations"}),  # exchanges, and rings
    ],
)
def test_faults_of_drawn_runs_are_named(number: int, judged: set[str], tmp_path: Path) -> None:
    checks = score_run(make(number, None, tmp_path)).checks
    found = {name: check.problems for name, check in checks.items() if name in judged}
    assert found == {name: [] for name in judged}
    assert all(checks[name].of for name in judged)
    assert checks["clean"].problems == checks["ranks"].problems == []


LEAST = {
    "jobs": 0.9, "ranks": 1.0, "null": 1.0, "boundaries": 0.9, "durations": 0.8, "straggler": 0.7,
    "clean": 1.0, "network": 0.6, "hang": 0.9, "cost": 0.8, "share": 1.0,
}  # fmt: skip
"""Of the cases of each check in drawn runs: what is right."""


@pytest.mark.thorough
def test_drawn_runs(tmp_path: Path) -> None:
    """Four runs of each kind. Nobody is blamed who is not late, no rank is wrong, and bounds of
    the network's part hold."""
    scores = [score_run(make(number, None, tmp_path)) for number in range(48)]
    for name, least in LEAST.items():
        cases = [one.checks[name] for one in scores]
        right, of = sum(case.right for case in cases), sum(case.of for case in cases)
        problems = [problem for case in cases for problem in case.problems]
        assert right >= least * of > 0, (name, problems)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 9)), max_size=12))
def test_data_is_on_the_wire_while_a_message_is(spans: list[tuple[int, int, int]]) -> None:
    """As counted ns by ns, for messages of more than one packet."""
    spans = sorted(spans)
    times = np.array([(begun, begun + lasts) for begun, lasts, _ in spans] or [(0, 0)], np.int64)
    sizes = np.array([size for *_, size in spans] or [1], np.int64)
    edge = Edge(0, 0, 1, times[:, 0], times[:, 1], sizes, np.zeros(0, np.int64), None)
    per_byte, busy = on_wire([edge], np.array([0, 100]))
    counted = {ns for begun, until in times.tolist() for ns in range(begun, until)}
    carried = int(sizes[times[:, 1] > times[:, 0]].sum())
    assert busy.tolist() == [len(counted)]
    assert per_byte[0] == len(counted) / carried if carried else np.isnan(per_byte[0])


def test_the_straggler_is_a_finding_and_no_victim_is() -> None:
    (finding,) = of_run("h5").diagnosis.findings
    assert (finding.kind, finding.place.host) == ("straggler", "10.1.3.11")
    assert "rank 2 (10.1.3.11) in steps 5 to 7" in finding.sentence
    assert "likely the GPU or its kernels, not the network" in finding.sentence
    (cost,) = finding.job_cost
    assert (cost.from_step, cost.until_step) == (5, 7)
    assert cost.cost_ns == finding.cost_ns == pytest.approx(33.9 * MS, rel=0.01)


def test_what_a_congested_link_costs_the_job() -> None:
    (finding,) = of_run("h3").diagnosis.findings
    assert finding.kind == "ecn-marking"
    (cost,) = finding.job_cost
    assert (cost.from_step, cost.until_step) == (3, 7)
    assert finding.cost_ns == cost.cost_ns > 15 * MS


def test_a_hang_is_a_finding_and_takes_the_tick_away() -> None:
    diagnosis = of_run("h6").diagnosis
    (finding,) = diagnosis.findings
    assert (finding.kind, finding.severity, finding.place.host) == ("hang", "critical", "10.2.4.10")
    assert "rank 3 (10.2.4.10) sends and grants nothing" in finding.sentence
    assert not any("none stalled" in line for line in diagnosis.healthy)
    assert any("none stalled" in line for line in of_run("h1").diagnosis.healthy)


@pytest.mark.parametrize("name", ["h1", "h4"])
def test_clean_runs_have_no_finding(name: str) -> None:
    analysis = of_run(name)
    assert analysis.diagnosis.findings == []
    assert all(not job.stragglers and job.hang is None for job in analysis.jobs)


def test_one_tap_names_no_other_rank() -> None:
    """At one of two uplinks a part of the ranks shows: the straggler or nobody."""
    (folder,) = RUNS.glob("h2*")
    for capture in folder.glob("*.pcap.zst"):
        named = {s.address for job in analyzed(capture).jobs for s in job.stragglers}
        assert named <= {"10.1.5.10"}


def test_a_filtered_or_other_capture_has_no_steps() -> None:
    whole = Path(__file__).parents[2] / "data" / "whole_leafspine" / "r09_packet_spray_h1"
    analysis = analyzed(*whole.glob("*.pcap*"))
    assert all(job.iterations is None and job.iterations_reason for job in analysis.jobs)
    assert all(job.hang is None and not job.stragglers for job in analysis.jobs)


# --- steps --------------------------------------------------------------------------------------


def periodic(
    steps: int,
    pauses_ms: list[float],
    flow: int = 0,
    ends: tuple[int, int] = (0, 1),
    begin_ms: float = 0.0,
    jitter: np.ndarray | None = None,
    granted: bool = True,
) -> Edge:
    """Messages of 0.1 ms after these pauses, again in each step; jitter: factor of each step."""
    stretch = np.ones(steps) if jitter is None else jitter
    pauses = (np.array(pauses_ms)[None, :] * stretch[:, None]).reshape(-1) + 0.1
    begun = np.round((begin_ms + np.cumsum(pauses)) * MS).astype(np.int64)
    ended = begun + MS // 10
    grants = begun - MS // 20 if granted else np.zeros(0, np.int64)
    size = np.full(len(begun), 32768)
    return Edge(flow, *ends, begun, ended, size, grants, flow + 1000 if granted else None)


@given(
    steps=st.integers(8, 30),
    pauses=st.lists(st.sampled_from([0.01, 0.2, 3.0]), min_size=1, max_size=12),
    last=st.floats(8, 40),
    cut=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_rhythm(steps: int, pauses: list[float], last: float, cut: int, seed: int) -> None:
    """Wherever the capture begins, messages repeat themselves after a step and not earlier."""
    jitter = 1 + 0.01 * np.random.default_rng(seed).random(steps)
    edge = periodic(steps, [last, *pauses], jitter=jitter)
    rhythm = rhythm_of(edge.begun_ns[cut:], edge.ended_ns[cut:], edge.bytes[cut:])
    assert rhythm is not None
    assert rhythm.messages == len(pauses) + 1
    assert rhythm.period_ns == pytest.approx(
        np.median(np.diff(edge.begun_ns[:: len(pauses) + 1])), rel=0.02
    )


def test_two_periods_are_none() -> None:
    edge = periodic(2, [20.0, 0.1, 0.1])
    assert rhythm_of(edge.begun_ns, edge.ended_ns, edge.bytes) is None


def test_requests_that_take_turns_are_no_steps() -> None:
    edge = periodic(1000, [0.2])
    assert rhythm_of(edge.begun_ns, edge.ended_ns, edge.bytes) is None


def ring(addresses: list[int], first_flow: int, **options: Any) -> list[Edge]:
    pairs = zip(addresses, [*addresses[1:], addresses[0]], strict=True)
    return [periodic(flow=first_flow + i, ends=ends, **options) for i, ends in enumerate(pairs)]


def test_two_jobs_on_the_same_ports_stay_apart() -> None:
    a = ring([1, 2, 3, 4], 0, steps=12, pauses_ms=[20, 0.1, 0.1, 5, 0.1])
    b = ring([1, 2, 3, 4], 10, steps=15, pauses_ms=[16, 0.1, 0.1], begin_ms=5.0)
    groups = groups_of(a + b)
    assert [sorted(edge.flow for edge in group.edges) for group in groups] == [
        [0, 1, 2, 3], [10, 11, 12, 13],
    ]  # fmt: skip
    assert [len(group.epochs[0].bounds_ns) - 1 for group in groups] == [12, 15]


def test_new_queue_pairs_are_a_restart() -> None:
    before = ring([1, 2, 3], 0, steps=6, pauses_ms=[20, 0.1, 0.1])
    after = ring([1, 2, 3], 10, steps=8, pauses_ms=[20, 0.1, 0.1], begin_ms=500.0)
    (group,) = groups_of(before + after)
    assert [len(epoch.bounds_ns) - 1 for epoch in group.epochs] == [6, 8]


def test_the_slow_step_of_a_late_rank_ends_where_its_messages_do() -> None:
    """The others send what they may and pause: that pause is no boundary."""
    jitter = np.ones(10)
    jitter[6] = 1.5
    edges = ring([1, 2, 3, 4], 0, steps=10, pauses_ms=[20, 0.1, 0.1, 0.1], jitter=jitter)
    early = edges[1].begun_ns.copy()
    early[24] -= 8 * MS  # the first message of step 6, which the late rank does not delay
    edges[1] = edges[1]._replace(
        begun_ns=early,
        ended_ns=np.where(early == edges[1].begun_ns, edges[1].ended_ns, early + MS // 10),
    )
    (group,) = groups_of(edges)
    ends = [int(edges[0].ended_ns[4 * k + 3]) for k in range(10)]
    bounds = group.epochs[0].bounds_ns
    assert all(bounds[k] <= ends[k] < bounds[k + 1] for k in range(10))


def test_without_grants_a_steady_stream_is_no_job() -> None:
    pairs = [(1, 2), (1, 3), (2, 4), (5, 3)]
    edges = [
        periodic(10, [20, 0.1, 0.1], flow=i, ends=pair, granted=False)
        for i, pair in enumerate(pairs)
    ]
    (group,) = groups_of(edges)
    assert group.reason is not None and "no grants of NCCL" in group.reason


@pytest.mark.parametrize(
    ("pairs", "pattern"),
    [
        ([(1, 2), (2, 3), (3, 1)], "ring"),
        ([(1, 3), (3, 2), (2, 1), (1, 2), (2, 3), (3, 1)], "ring"),
        ([(1, 2), (2, 1), (2, 3), (3, 2), (2, 4), (4, 2)], "tree"),
        ([(1, 2), (2, 1), (2, 3), (3, 2)], "pairs"),
        ([(1, 2), (2, 3)], "unknown"),
    ],
)
def test_shapes(pairs: list[tuple[int, int]], pattern: str) -> None:
    assert shape_of(pairs)[0] == pattern
    if pattern == "ring":
        order = shape_of(pairs)[1]
        assert all(pair in pairs for pair in zip(order, [*order[1:], order[0]], strict=True))


def test_an_exchange_has_sizes_that_vary() -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    assert shape_of(pairs, sizes_vary=True)[0] == "exchange"
    assert shape_of(pairs)[0] == "ring"


def test_queue_pairs_that_take_turns_are_one_bundle() -> None:
    edges = [periodic(10, [20, 0.1, 0.1], flow=i) for i in range(4)]
    other = periodic(10, [20, 0.1, 0.1] * 3, flow=9)
    sizes = Counter(len(bundle.edges) for bundle in bundles_of([*edges, other]))
    assert sizes == {4: 1, 1: 1}


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), min_size=1, max_size=40))
def test_idle_times(messages: list[tuple[int, int]]) -> None:
    """By counting what is in flight at each moment."""
    begun = np.array(sorted(begin for begin, _ in messages), np.int64)
    lasting = np.array([length for _, length in messages], np.int64)
    nothing = np.zeros(0, np.int64)
    edge = Edge(0, 1, 2, begun, begun + lasting, lasting, nothing, None)
    busy = np.zeros(240, bool)
    for begin, length in zip(begun, lasting, strict=True):
        busy[begin : begin + length] = True
    idle = idle_times([edge])
    expected = ~busy[begun[0] : (begun + lasting).max()]
    assert idle.lasting_ns.sum() == expected.sum()
    for since, until in zip(idle.from_ns, idle.until_ns, strict=True):
        assert not busy[since:until].any() and busy[until]


# --- who is waited for --------------------------------------------------------------------------


def test_usual_duration_where_most_steps_are_slow() -> None:
    usual, jitter = usual_of(np.array([np.nan, 20.0, 20.1, 19.9, 28, 28.2, 28.1, 28, 28.3]) * MS)
    assert usual == pytest.approx(20 * MS, rel=0.01)
    assert 0.5 * MS < jitter < 5 * MS


def late_ring(late: int, extra_ms: float, slow: range, grants_late: bool) -> list[Edge]:
    """A ring of 4 in which one rank is late: nobody sends its second message before it sends."""
    edges = []
    for rank in range(4):
        begun, ended, granted = [], [], []
        now = 0.0
        for step in range(12):
            extra = extra_ms if step in slow else 0.0
            start = now + 20 + 0.05 * rank
            own = start + (extra if rank == late else 0.0)
            goes_on = max(own + 0.1, start + extra + 0.1)
            times = [own, *(goes_on + 0.1 * i for i in range(5))]
            begun += times
            ended += [time + 0.1 for time in times]
            successor_late = grants_late and (rank + 1) % 4 == late
            granted += [now + 5 + (extra if successor_late else 0)] + [t - 0.05 for t in times[1:]]
            now = times[-1] + 0.1
        first, last = (np.round(np.array(at) * MS).astype(np.int64) for at in (begun, ended))
        grants = np.sort(np.round(np.array(granted) * MS).astype(np.int64))
        ends = rank, (rank + 1) % 4
        edges.append(Edge(rank, *ends, first, last, np.full(72, 32768), grants, rank + 100))
    return edges


@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize(("grants_late", "cause"), [(False, "late_data"), (True, "late_grants")])
def test_a_late_rank_is_blamed_with_its_cause(late: int, grants_late: bool, cause: str) -> None:
    (group,) = groups_of(late_ring(late, 6.0, range(7, 10), grants_late))
    line = timeline(group.epochs[0])
    ends = np.nanmax(line.last_data, axis=1)
    verdicts = judge(line, np.diff(ends, prepend=np.nan))
    blamed = {
        step: (line.ranks[blame.rank], blame.cause)
        for step, blame in enumerate(verdicts.blamed)
        if blame is not None
    }
    assert blamed == dict.fromkeys(range(7, 10), (late, cause))
    assert verdicts.slow.tolist() == [step in range(7, 10) for step in range(12)]


def test_nobody_is_blamed_for_a_slow_network() -> None:
    """All messages after the first one of each step come late: no rank delays them."""
    edges = late_ring(0, 0.0, range(0), False)
    slower = []
    for edge in edges:
        begun, ended = edge.begun_ns.reshape(12, 6).copy(), edge.ended_ns.reshape(12, 6).copy()
        behind = np.zeros((12, 6), np.int64)
        behind[8:10, 1:] = np.arange(1, 6) * MS
        behind += np.concatenate([[0], np.cumsum(behind[:, -1])[:-1]])[:, None]
        slower.append(
            edge._replace(
                begun_ns=(begun + behind).reshape(-1), ended_ns=(ended + behind).reshape(-1)
            )
        )
    (group,) = groups_of(slower)
    line = timeline(group.epochs[0])
    verdicts = judge(line, np.diff(np.nanmax(line.last_data, axis=1), prepend=np.nan))
    assert not any(verdicts.blamed)
    assert [step for step, slow in enumerate(verdicts.network) if slow] == [8, 9]


def sources_of(edges: list[Edge], until_ns: dict[int, int], **options: Any) -> Sources:
    """What an analysis of these edges, and of their grants, has."""
    messages, flows = [], np.zeros(1100, FLOW)
    flows["peer"] = -1
    for edge in edges:
        part = np.zeros(len(edge.begun_ns), MESSAGE)
        part["begun_ns"], part["ended_ns"], part["bytes"] = (
            edge.begun_ns, edge.ended_ns, edge.bytes,
        )  # fmt: skip
        part["flow"] = edge.flow
        granted = np.zeros(len(edge.granted_ns), MESSAGE)
        granted["begun_ns"] = granted["ended_ns"] = edge.granted_ns
        granted["bytes"], granted["may_grant"], granted["flow"] = 64, 1, edge.grants
        messages += [part, granted]
        flows[edge.flow]["src"], flows[edge.flow]["dst"] = edge.src, edge.dst
        flows[edge.grants]["peer"], flows[edge.flow]["peer"] = edge.flow, edge.grants
    whole = np.concatenate(messages)
    return Sources(
        messages=whole[np.lexsort((whole["begun_ns"], whole["flow"]))],
        flows=flows,
        addresses=[f"10.0.0.{number}" for number in range(10)],
        grants={},
        owners={},
        open_ns={},
        lossy=set(),
        until_ns=until_ns,
        taps=options.pop("taps", 1),
        ways={},
        marked=set(),
        **options,
    )


@pytest.mark.parametrize("late", range(4))
def test_a_rank_that_is_late_in_all_steps_is_named(late: int) -> None:
    (job,) = training_jobs(sources_of(late_ring(late, 6.0, range(12), False), {})).jobs
    (straggler,) = job.stragglers
    assert (straggler.address, straggler.from_step, straggler.until_step) == (
        f"10.0.0.{late}", 0, 11,
    )  # fmt: skip


def cut(edge: Edge, count: int) -> Edge:
    """An edge whose capture ends after this number of messages."""
    return edge._replace(
        begun_ns=edge.begun_ns[:count],
        ended_ns=edge.ended_ns[:count],
        bytes=edge.bytes[:count],
        granted_ns=edge.granted_ns[:count],
    )


def test_a_job_that_ends_before_the_next_one_begins_is_no_hang() -> None:
    """All steps are whole; the next job on these hosts has new queue pairs."""
    first = late_ring(0, 0.0, range(0), False)
    later = [
        edge._replace(
            flow=edge.flow + 10,
            grants=(edge.grants or 0) + 10,
            begun_ns=edge.begun_ns + 3000 * MS,
            ended_ns=edge.ended_ns + 3000 * MS,
            granted_ns=edge.granted_ns + 3000 * MS,
        )
        for edge in first
    ]
    (job,) = training_jobs(sources_of(first + later, {})).jobs
    assert [epoch.ended_by for epoch in job.epochs] == ["restart", "end"]
    assert job.hang is None


@pytest.mark.parametrize("runs_on", [True, False])
def test_a_tap_that_ends_within_a_step_is_no_hang(runs_on: bool) -> None:
    """Three ranks are silent after some messages of step 6, one rank earlier: a hang, but only if
    the taps capture on."""
    edges = ring([1, 2, 3, 4], 0, steps=12, pauses_ms=[20, 0.1, 0.1, 0.1])
    edges = [cut(edge, 24 if edge.src == 3 else 26) for edge in edges]
    edges = [e._replace(granted_ns=e.granted_ns[:24]) if e.dst == 3 else e for e in edges]
    ends = {edge.flow: int(edge.ended_ns[-1]) for edge in edges}
    until = {flow: end + 500 * MS * runs_on for flow, end in ends.items()}
    (job,) = training_jobs(sources_of(edges, until)).jobs
    assert (job.hang is not None) == runs_on
    if job.hang is not None:
        assert [rank.address for rank in job.hang.missing] == ["10.0.0.3"]


def test_where_messages_may_be_missing_there_are_no_steps() -> None:
    edges = ring([1, 2, 3, 4], 0, steps=12, pauses_ms=[20, 0.1, 0.1, 0.1])
    (job,) = training_jobs(sources_of(edges, {}, unreliable="a filter is set")).jobs
    assert (job.iterations, job.iterations_reason) == (None, "a filter is set")


def test_a_filter_takes_the_steps_away() -> None:
    (folder,) = RUNS.glob("h2*")
    analysis = analyzed(*folder.glob("*.pcap.zst"), filter="ip.src == 10.1.5.10")
    assert all("filter" in (job.iterations_reason or "") for job in analysis.jobs)
    assert analysis.diagnosis.findings == []


# --- the log of messages ------------------------------------------------------------------------


def messages_of(rows: list[tuple[int, int, int]]) -> np.ndarray:
    made = np.zeros(len(rows), MESSAGE)
    for record, (flow, begun, length) in zip(made, rows, strict=True):
        record["flow"], record["begun_ns"], record["ended_ns"] = flow, begun, begun + length
        record["bytes"] = length
    return made


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 10_000), st.integers(1, 50)), max_size=120
)


@given(ROWS, st.integers(1, 40), st.booleans())
def test_a_full_log_counts_what_it_leaves_out(
    rows: list[tuple[int, int, int]], most: int, newest: bool
) -> None:
    log = MessageLog(most, most, newest)
    rows = sorted(rows, key=lambda row: row[1])
    for at in range(0, len(rows), 7):
        log.add(messages_of(rows[at : at + 7]))
    kept = log.messages()
    assert len(kept) + log.left_out == len(rows)
    assert len(kept) <= most
    part = rows[-len(kept) :] if newest else rows[: len(kept)]
    assert sorted(kept["begun_ns"].tolist()) == sorted(row[1] for row in part if len(kept))


@given(ROWS, ROWS)
def test_merged_logs_are_the_log_of_all(
    ours: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]]
) -> None:
    whole, log, other = MessageLog(), MessageLog(), MessageLog()
    for rows, part, shift in ((ours, log, 0), (theirs, other, 5)):
        part.add(messages_of(rows))
        whole.add(messages_of([(flow + shift, begun, length) for flow, begun, length in rows]))
    log.merge(other, np.arange(5, 10, dtype=np.int32))
    merged, expected = (np.sort(part.messages(), order=MESSAGE.names) for part in (log, whole))
    assert np.array_equal(merged, expected)


@given(ROWS, st.lists(st.booleans(), min_size=5, max_size=5))
def test_flows_that_leave_take_their_messages(
    rows: list[tuple[int, int, int]], stays: list[bool]
) -> None:
    log = MessageLog()
    log.add(messages_of(rows))
    log.keep(kept_flows(np.array(stays)))
    numbers = np.cumsum(stays) - 1
    left = [(int(numbers[flow]), *rest) for flow, *rest in rows if stays[flow]]
    assert sorted(log.messages()[["flow", "begun_ns"]].tolist()) == sorted(
        (flow, begun) for flow, begun, _ in left
    )


# --- hostile input ------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.one_of(st.integers(0, 2_000), st.integers(1 << 60, 1 << 61)),
            st.integers(0, 300),
            st.booleans(),
        ),
        max_size=150,
    ),
    st.lists(st.integers(-1, 7), min_size=8, max_size=8),
    st.integers(1, 1000),
    st.integers(1, 6),
)
def test_any_messages_give_a_result(
    rows: list[tuple[int, int, int, bool]], peers: list[int], scale: int, repeated: int
) -> None:
    """Times that jump, run backwards or are equal; wrong peers; patterns that nearly repeat."""
    log = MessageLog()
    for again in range(repeated):
        made = messages_of(
            [(f, begun * scale if begun < 2_000 else begun, size) for f, begun, size, _ in rows]
        )
        made["begun_ns"] += again * 20 * MS
        made["ended_ns"] += again * 20 * MS
        made["may_grant"] = [grant for *_, grant in rows]
        log.add(made)
    flows = np.zeros(8, FLOW)
    flows["src"], flows["dst"] = [0, 1, 2, 3, 0, 1, 1, 2], [1, 2, 3, 0, 2, 0, 3, 1]
    flows["peer"] = peers
    sources = Sources(
        messages=log.messages(),
        flows=flows,
        addresses=["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
        grants={1: GrantNames(3, -1)},
        owners={},
        open_ns={2: 5},
        lossy=set(),
        until_ns=dict.fromkeys(range(8), 1 << 61),
        taps=1,
        ways={0: ["leaf1"], 2: ["leaf1"]},
        marked={2},
    )
    found = training_jobs(sources)
    for job in found.jobs:
        assert (job.iterations is None) == (job.iterations_reason is not None)
        steps = [] if job.iterations is None else job.iterations.steps
        assert [step.index for step in steps] == list(range(len(steps)))
        for straggler in job.stragglers:
            assert 0 <= straggler.from_step <= straggler.until_step < len(steps)
