"""Schemes side by side: what the result says of them."""

from __future__ import annotations

import pytest
from aggregating import small_jobs

from rocescope.analyzer.errors import UsageError
from rocescope.replay.aggregation import compare
from rocescope.replay.aggregation.compare import aggregation_result, check_sizes
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.compare.packets import COMPILING


@pytest.mark.parametrize(("kernels", "said"), [(["run_jobs"], COMPILING), ([], "runs")])
def test_compiling_is_told_instead_of_runs(monkeypatch, kernels, said):
    jobs, fabric = small_jobs("workers=2,fragments=20,window=8,iterations=1")
    monkeypatch.setattr(compare, "IDLE_TICKS", 0)
    monkeypatch.setattr(compare, "compiling", kernels)
    steps = []
    aggregation_result(
        parse_schemes(["atp"]), [48], jobs, fabric, Conditions(0), 1,
        progress=lambda *now: steps.append(now),
    )  # fmt: skip
    assert steps[-1] == (said, 1, 1)


def test_what_is_assumed_of_a_scheme_is_named_where_it_matters():
    jobs, fabric = small_jobs(
        "workers=4,racks=2,fragments=20,window=8,iterations=1",
        fabric="leaf-spine:leaves=2,spines=1,hosts=4",
    )
    result = aggregation_result(
        parse_schemes(["switchml", "a2tp"]), [48], jobs, fabric, Conditions(0), 1
    )
    assert result.assumed[:2] == [compare.A2TP_ASSUMED, compare.RACKS_ASSUMED]
    assert [one.jobs[0].aggregated_percent for one in result.schemes] == [100, 100]
    alone, fabric = small_jobs("workers=2,fragments=20,window=8,iterations=1")
    result = aggregation_result(parse_schemes(["switchml"]), [48], alone, fabric, Conditions(0), 1)
    assert result.assumed == [compare.JOBS_ASSUMED]


def test_every_scheme_runs_with_every_memory_that_limits_it():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=200,window=32,iterations=2")
    schemes = parse_schemes(["atp", "switchml", "ideal", "none"])
    done = []
    result = aggregation_result(
        schemes, [48, 512], jobs, fabric, Conditions(0), 2, False, (), lambda *now: done.append(now)
    )
    named = [(one.name, one.slots) for one in result.schemes]
    assert named == [
        ("atp", 48), ("atp", 512), ("switchml", 48), ("switchml", 512),
        ("ideal", None), ("none", None),
    ]  # fmt: skip
    assert done[-1] == ("runs", 12, 12)
    by = dict(zip(named, result.schemes, strict=True))
    assert by["ideal", None].mean_completion_ns < by["none", None].mean_completion_ns
    assert by["ideal", None].jobs[0].aggregated_percent == 100
    assert by["none", None].jobs[0].aggregated_percent == 0
    assert by["atp", 48].jobs[0].collisions > 0 == by["atp", 512].jobs[1].preemptions
    for one in result.schemes:
        assert one.least_completion_ns <= one.mean_completion_ns <= one.most_completion_ns
        assert one.links == sorted(one.links, key=lambda link: -link.wire_bytes)
        if one.occupancy is not None:
            assert 0 < one.useful_percent <= one.used_percent <= 100
            shares = zip(one.occupancy.useful_percent, one.occupancy.used_percent, strict=True)
            assert all(useful <= used <= 100.001 for useful, used in shares)
    assert by["switchml", 48].occupancy is None  # fixed shares
    assert not result.warnings


def test_schemes_that_cannot_run_are_told_before_the_first_run():
    jobs, fabric = small_jobs("workers=2,fragments=50,window=32")
    schemes, ran = parse_schemes(["ideal", "atp"]), []
    with pytest.raises(UsageError, match="atp: job1 comm has a window of 32"):
        aggregation_result(
            schemes, [16], jobs, fabric, Conditions(0), 1, False, (), lambda *now: ran.append(now)
        )
    assert not ran
    result = aggregation_result(schemes, [16], jobs, fabric, Conditions(0), 1, True)
    assert [one.name for one in result.schemes] == ["ideal"]
    assert result.warnings[0].startswith("left out: atp: job1 comm")


def test_slots_that_late_copies_hold_are_told():
    jobs, fabric = small_jobs("workers=4,fragments=2000,iterations=4,window=400")
    noisy = Conditions(0, copies=0.05)
    result = aggregation_result(parse_schemes(["atp"]), [512], jobs, fabric, noisy, 1)
    assert "still occupied after the end of all jobs" in result.warnings[0]


def test_without_aggregation_nothing_is_aggregated():
    jobs, fabric = small_jobs("workers=1,fragments=50,window=32")
    result = aggregation_result(parse_schemes(["none"]), [64], jobs, fabric, Conditions(0), 1)
    assert result.schemes[0].jobs[0].aggregated_percent == 0


def test_a_job_that_does_not_end_is_named():
    jobs, fabric = small_jobs("workers=3,fragments=200,window=32")
    short = Conditions(64, until_ps=1_000_000)
    result = aggregation_result(parse_schemes(["atp"]), [64], jobs, fabric, short, 1)
    assert result.schemes[0].mean_completion_ns is None
    assert result.warnings == ["atp: a job did not end within the simulated time"]


def test_memory_without_slots():
    with pytest.raises(UsageError, match="--memory must be 1 to"):
        check_sizes([0])


def test_ring_and_tree_beside_the_schemes():
    jobs, fabric = small_jobs("workers=8,fragments=2000", "workers=1,fragments=10")
    schemes = parse_schemes(["atp", "ring", "tree"])
    result = aggregation_result(schemes, [4096], jobs, fabric, Conditions(0), 2)
    atp, ring, tree = result.schemes
    assert atp.mean_completion_ns < ring.mean_completion_ns  # every gradient leaves a host once
    for one in (ring, tree):
        assert one.slots is None and one.jobs[0].server_packets == 0 and one.links
        assert one.wire_bytes == pytest.approx(sum(link.wire_bytes for link in one.links))
        assert one.least_completion_ns <= one.mean_completion_ns <= one.most_completion_ns
    assert any(text.startswith("ring and tree") for text in result.assumed)
