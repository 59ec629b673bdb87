"""The scorer of training jobs: a true result is right, and each mistake is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training_runs import training_run

from rocescope.analyzer.results.jobs import TrainingJob

from .job_runs import KINDS, TRAINING, again, drawn
from .job_score import CAUSES, Json, Score, complete, durations, score, table
from .job_views import VIEWS, read, views_of

SLOW = (("job:kind=ddp,steps=8,jitter=0.3%",), ("slow-gpu:rank=2,from=4,factor=1.4",))
CONGESTED = (("job:kind=ddp,steps=8",), ("congested-link:link=leaf1>spine1,from=4,factor=0.1",))
HANGING = (("job:kind=ddp,steps=8",), ("hang:rank=3,from=4,restart=200ms",))
TWO = (("job:kind=ddp,steps=6", "job:kind=fsdp,steps=6,with=a"), ())
SHORT = (("job:kind=ddp,steps=3",), ())


def _result(truth: Json) -> Json:
    """What an analysis would say that knows the truth."""
    flows: list[Json] = []
    ids: dict[str, list[int]] = {job["name"]: [] for job in truth["jobs"]}
    for pair in truth["queue_pairs"]:
        for src, dst, qp in (
            (pair["src"], pair["dst"], pair["dst_qp"]),
            (pair["dst"], pair["src"], pair["src_qp"]),
        ):
            ids[pair["job"]].append(len(flows))
            flows.append({"id": len(flows), "src": src, "dst": dst, "dest_qp": qp})
    jobs, findings = [], []
    for number, job in enumerate(truth["jobs"]):
        jobs.append(_job(truth, number, job, ids[job["name"]]))
        links = [(i, s, c) for i, s in enumerate(complete(job)) for c in s["causes"] if "link" in c]
        if links:
            cost = sum(step["fault_ns"] for _, step, _ in links)
            of = {"job": number, "from_step": links[0][0], "until_step": links[-1][0]}
            findings.append(
                {
                    "sentence": "queues before " + "-".join(sorted(links[0][2]["link"].split(">"))),
                    "place": {},
                    "job_cost": of | {"cost_ns": cost},
                }
            )
    return {"flows": flows, "jobs": jobs, "diagnosis": {"findings": findings}}


def _job(truth: Json, number: int, job: Json, flows: list[int]) -> Json:
    lasting, slow = durations(job), list[tuple[int, Json]]()
    steps = []
    for index, step in enumerate(complete(job)):
        ranks = [c["ranks"][0] for c in step["causes"] if c["kind"] in CAUSES]
        slow += [(index, step)] * bool(ranks)
        steps.append(
            {
                "index": index,
                "last_message_ns": step["last_message_ns"],
                "duration_ns": lasting.get((step["generation"], step["step"])),
                "waited_for": ranks[0] if ranks else None,
                "network_ns": None,
                "network_low_ns": step["network_ns"] - 1000,
                "network_high_ns": step["network_ns"] + 1000,
            }
        )
    stragglers = []
    if slow:
        cause = slow[0][1]["causes"][0]
        stragglers.append(
            {
                "address": job["ranks"][cause["ranks"][0]]["address"],
                "rank": cause["ranks"][0],
                "from_step": slow[0][0],
                "until_step": slow[-1][0],
                "wait_ns": sum(step["fault_ns"] for _, step in slow),
                "cause": CAUSES[cause["kind"]],
            }
        )
    hang = truth["hang"]
    is_short = len(lasting) < 3
    return {
        "id": number,
        "name": job["name"],
        "flows": flows,
        "addresses": [rank["address"] for rank in job["ranks"]],
        "ranks": [{"address": r["address"], "rank": r["rank"]} for r in job["ranks"]],
        "iterations": None if is_short else {"boundary": "marker", "steps": steps},
        "iterations_reason": "fewer than 3 periods" if is_short else None,
        "stragglers": stragglers,
        "hang": hang and {"until_ns": 1, "missing": [{"rank": rank} for rank in hang["ranks"]]},
    }


def _problems(made: Score) -> dict[str, list[str]]:
    return {name: check.problems for name, check in made.checks.items() if check.problems}


@pytest.mark.parametrize("run", [SLOW, CONGESTED, HANGING, TWO, SHORT])
def test_the_truth_is_right(run: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    truth = training_run(*run).truth
    made = score("run", truth, _result(truth))
    assert not _problems(made)
    assert made.checks["jobs"].of == len(truth["jobs"])
    assert all(error == 0 for error in made.errors)


def _spoil(path: str, value: Any) -> Callable[[Json], None]:
    """Set `jobs.0.hang` and the like."""

    def spoil(result: Json) -> None:
        *way, last = path.split(".")
        at: Any = result
        for step in way:
            at = at[int(step) if step.lstrip("-").isdecimal() else step]
        at[int(last) if last.lstrip("-").isdecimal() else last] = value

    return spoil


def _merged(result: Json) -> None:
    result["jobs"][0]["flows"] += result["jobs"].pop()["flows"]


def _without_jobs(result: Json) -> None:
    del result["jobs"]


def _late(result: Json) -> None:
    result["jobs"][0]["iterations"]["steps"][5]["last_message_ns"] += 500_000


def _longer(result: Json) -> None:
    result["jobs"][0]["iterations"]["steps"][5]["duration_ns"] += 1_000_000


def _ended_early(result: Json) -> None:
    result["jobs"][0]["iterations"]["steps"].pop()


def _blamed(result: Json) -> None:
    result["jobs"][0]["stragglers"].append(
        {"address": "10.0.0.1", "rank": 0, "from_step": 5, "until_step": 6, "wait_ns": 1,
         "cause": "late_data"}
    )  # fmt: skip


MISTAKES: list[tuple[Any, Callable[[Json], None], set[str]]] = [
    (TWO, _merged, {"jobs", "boundaries", "durations", "ranks"}),
    (SLOW, _without_jobs, {"jobs", "ranks", "boundaries", "durations", "straggler"}),
    (SLOW, _spoil("jobs.0.flows", [0, 1]), {"jobs"}),
    (SLOW, _spoil("jobs.0.ranks.1.rank", None), {"ranks"}),
    (SLOW, _spoil("jobs.0.ranks.1.rank", 3), {"ranks"}),
    (SLOW, _late, {"boundaries"}),
    (SLOW, _longer, {"durations"}),
    (SLOW, _ended_early, {"boundaries", "cost"}),
    (SLOW, _spoil("jobs.0.stragglers", []), {"straggler"}),
    (SLOW, _spoil("jobs.0.stragglers.0.cause", "late_grants"), {"straggler"}),
    (SLOW, _spoil("jobs.0.stragglers.0.rank", 1), {"straggler", "clean"}),
    (SLOW, _spoil("jobs.0.stragglers.0.wait_ns", 0), {"cost"}),
    (SLOW, _spoil("jobs.0.iterations.steps.5.waited_for", None), {"straggler"}),
    (SLOW, _spoil("jobs.0.iterations.steps.5.network_high_ns", 1), {"share"}),
    (SLOW, _spoil("jobs.0.iterations.steps.5.network_ns", 0), {"share"}),
    (TWO, _blamed, {"clean"}),
    (CONGESTED, _blamed, {"clean"}),
    (CONGESTED, _spoil("diagnosis.findings", []), {"network"}),
    (CONGESTED, _spoil("diagnosis.findings.0.sentence", "leaf1-spine2"), {"network"}),
    (CONGESTED, _spoil("diagnosis.findings.0.job_cost.from_step", 1), {"network"}),
    (CONGESTED, _spoil("diagnosis.findings.0.job_cost.cost_ns", 0), {"cost"}),
    (HANGING, _spoil("jobs.0.hang", None), {"hang"}),
    (HANGING, _spoil("jobs.0.hang.missing.0.rank", 2), {"hang"}),
    (HANGING, _spoil("jobs.0.hang.until_ns", None), {"hang"}),
    (SHORT, _spoil("jobs.0.iterations_reason", None), {"null"}),
    (SHORT, _spoil("jobs.0.iterations", {"boundary": "marker", "steps": []}), {"null"}),
]


@pytest.mark.parametrize(("run", "spoil", "checks"), MISTAKES)
def test_every_mistake_fails_its_check(
    run: tuple[tuple[str, ...], tuple[str, ...]],
    spoil: Callable[[Json], None],
    checks: set[str],
) -> None:
    truth = training_run(*run).truth
    result = copy.deepcopy(_result(truth))
    spoil(result)
    made = score("run", truth, result)
    assert set(_problems(made)) == checks
    assert "run" in made.line() and "100" in table([made])


def test_a_narrow_view_may_say_less_but_nothing_wrong() -> None:
    """Mistakes that are silence are none; the others stay."""
    silent = ("_without_jobs", "_ended_early")
    for run, spoil, checks in MISTAKES:
        truth = training_run(*run).truth
        result = copy.deepcopy(_result(truth))
        spoil(result)
        found = set(_problems(score("run", truth, result, narrow=True)))
        assert found <= checks
        if spoil.__name__ in silent:
            assert not found - {"cost"}
        if spoil.__name__ in ("_blamed", "_late", "_longer", "_merged"):
            assert found


def test_views_keep_what_they_say(tmp_path: Path) -> None:
    made = training_run(*SLOW)
    folder = tmp_path / "0001-slow-gpu-ddp"
    folder.mkdir()
    for name, seen in made.captures().items():
        (folder / f"{name}.pcap").write_bytes(b"".join(made.pcap(seen, 128)))
    (folder / "truth.json").write_text(json.dumps(made.truth))
    whole = {path.name: read(path) for path in folder.glob("*.pcap")}
    counts = {}
    for view in views_of(folder, tmp_path / "views", list(VIEWS)):
        captures = {path.name: read(path) for path in view.glob("*.pcap")}
        name = view.name.partition(":")[2]
        counts[name] = sum(map(len, captures.values()))
        truth = json.loads((view / "truth.json").read_text())
        left = len(complete(truth["jobs"][0]))
        assert left == 8 if name in ("snap96", "one-file", "clocks") else left <= 8
        if name == "middle":
            assert 3 <= left <= 5
        if name == "snap96":
            assert (
                max(len(record.data) for records in captures.values() for record in records) == 96
            )
    total = sum(map(len, whole.values()))
    assert counts["snap96"] == counts["one-file"] == counts["clocks"] == total
    assert counts["sampled"] < total / 2.9 and counts["one-link"] == len(whole["leaf1-spine1.pcap"])


def test_the_result_has_the_fields_that_the_scorer_reads() -> None:
    truth = training_run(*SLOW).truth
    (job,) = _result(truth)["jobs"]
    assert set(job) <= set(TrainingJob.__struct_fields__)


def test_drawn_runs_have_all_kinds_and_repeat() -> None:
    names = [drawn(number)[0] for number in range(200)]
    assert {name.split("-", 1)[1].rsplit("-", 1)[0] for name in names} == set(KINDS)
    assert {name.rsplit("-", 1)[1] for name in names} == set(TRAINING)
    assert drawn(7) == drawn(7)
    assert again("0012-slow-gpu-moe") == "python -m tests.lab.job_runs 12 1 --kind slow-gpu"
