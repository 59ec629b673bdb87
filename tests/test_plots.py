"""Charts for notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import factories_results
import polars as pl
import pytest
import training_jobs
from captures import DATA

import rocescope
from rocescope import plots
from rocescope.analyzer.errors import UsageError

FABRIC = "leaf-spine:leaves=2,spines=4,hosts=4"
TAPS = sorted((DATA / "leafspine/r09_packet_spray_h1").glob("*.pcap.gz"))


@pytest.fixture(scope="module")
def result() -> rocescope.Analysis:
    return rocescope.analyze(TAPS)


def test_charts_of_an_analysis(result: rocescope.Analysis) -> None:
    for chart in (plots.over_time(result), plots.taps(result), plots.reordering(result)):
        assert chart is not None
        ET.fromstring(chart.picture())
        assert pl.DataFrame(chart).height == len(chart.rows) > 1
    worst, even = plots.paths(result), plots.paths(result, 1)
    assert worst is not None and even is not None
    assert max(row[3] or 0 for row in worst.rows) > max(row[3] or 0 for row in even.rows)  # type: ignore[type-var]
    assert plots.paths(result, 2) is None and plots.hops(result) is None


def test_the_chart_of_a_job() -> None:
    job = training_jobs.straggling()
    known = rocescope.Analysis(factories_results.analysis(jobs=[job]))
    chart = plots.jobs(known)
    assert chart is not None and known.jobs == [job]
    ET.fromstring(chart.picture())
    assert pl.DataFrame(chart)["rank"].unique().len() == 4
    assert plots.jobs(known, 1) is None and plots.jobs(known, -1) is None


def test_charts_of_a_replay() -> None:
    chosen = ("ecmp:hash=crc32,seed=1", "ecmp:hash=crc32,seed=2", "assign")
    replay = rocescope.replay(pattern="permutation:qps=2", fabric=FABRIC, strategies=chosen)
    boxes = plots.strategies(replay)
    assert boxes is not None and len(boxes.rows) == 3
    second = plots.links(replay, "ecmp (hash=crc32, seed=2)", "leaf-spine")
    first = plots.links(replay, "ecmp", "leaf-spine")
    assert first is not None and second is not None and first.rows != second.rows
    matrix = plots.switches(replay, "assign", "leaf-spine")
    assert matrix is not None and [row[0] for row in matrix.rows] == ["leaf1", "leaf2"]
    with pytest.raises(UsageError, match=r"reps was not replayed; .* ecmp \(hash=crc32, seed=1\)"):
        plots.links(replay, "reps", "leaf-spine")


def test_the_chart_of_a_sweep() -> None:
    sweep = rocescope.sweep(pattern="permutation:qps=2", fabric=FABRIC, seeds=20)
    assert plots.seeds(sweep).rows[0][1] == sweep.record.distribution.min


def test_charts_of_aggregation() -> None:
    jobs, fabric = ["count=2,workers=3,fragments=100,window=32"], f"{FABRIC},rate=100G"
    found = rocescope.aggregate(fabric=fabric, jobs=jobs, memory=(40, 256), schemes=("atp", "ring"))
    assert [one.slots for one in found.schemes] == [40, 256, None]
    for chart in (plots.completions(found), plots.memory(found), plots.fullest_links(found)):
        assert chart is not None
        ET.fromstring(chart.picture())
        assert pl.DataFrame(chart).height == len(chart.rows) >= 3
    with pytest.raises(UsageError, match="give captures, or jobs"):
        rocescope.aggregate(fabric=fabric)
