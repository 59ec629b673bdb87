"""Charts of aggregation: lines over memory, bars, memory over time."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from aggregating import small_jobs
from msgspec.structs import replace

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.results.aggregation import AggregationResult
from rocescope.report.html.charts.aggregation import _decades, completions, occupancy, on_links

JOBS, FABRIC = small_jobs("count=2,workers=3,fragments=300,window=32,iterations=2")
ALL = parse_schemes(["atp", "esa", "switchml", "ideal", "none", "ring"])


def compared(*slots: int, **changes: int) -> AggregationResult:
    return aggregation_result(ALL, slots, JOBS, FABRIC, Conditions(0, **changes), 1)


@pytest.fixture(scope="module")
def several() -> AggregationResult:
    return compared(40, 128, 512)


def test_a_line_per_scheme_over_memory(several: AggregationResult) -> None:
    chart = completions(several)
    assert chart is not None and chart.columns == ("scheme", "slots", "ms")
    assert len(chart.rows) == 3 * 3 + 3
    picture = ET.fromstring(chart.picture())
    lines = [one for one in picture.iter() if one.tag.endswith("polyline")]
    assert [len((line.get("points") or "").split()) for line in lines] == [3, 3, 3]
    names = {one.name for one in several.schemes}
    labels = sorted(
        float(one.get("y") or 0)
        for one in picture.iter()
        if one.tag.endswith("text") and one.text in names and float(one.get("x") or 0) > 300
    )
    assert len(labels) == 6
    assert all(b - a >= 12.9 for a, b in pairwise(labels))


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_times_of_the_axis_are_not_cut(several: AggregationResult, factor: float) -> None:
    schemes = [
        replace(one, mean_completion_ns=(one.mean_completion_ns or 0) * factor)
        for one in several.schemes
    ]
    chart = completions(replace(several, schemes=schemes))
    assert chart is not None
    texts = [one for one in ET.fromstring(chart.picture()).iter() if one.tag.endswith("text")]
    times = [one for one in texts if float(one.get("x") or 0) < 60]
    assert len(times) > 1
    # Seven pixels a character, on average.
    assert all(float(one.get("x") or 0) >= 7 * len(one.text or "") for one in times)


def test_bars_with_one_memory_and_for_the_fullest_link() -> None:
    one = compared(64)
    chart, links = completions(one), on_links(one)
    assert chart is not None and links is not None
    assert [row[0] for row in chart.rows] == [
        "atp 64", "esa 64", "switchml 64", "ideal", "none", "ring",
    ]  # fmt: skip
    means = [s.mean_completion_ns for s in one.schemes]
    assert [row[1] for row in chart.rows] == [pytest.approx((m or 0) / 1e6) for m in means]
    assert dict(links.rows)["none"] > dict(links.rows)["atp 64"]  # type: ignore[operator]


def test_memory_over_time(several: AggregationResult) -> None:
    chart = occupancy(several)
    assert chart is not None
    assert {row[0] for row in chart.rows} == {
        f"{name} {slots}" for name in ("atp", "esa") for slots in (40, 128, 512)
    }
    assert all(0 <= row[3] <= row[2] <= 100.001 for row in chart.rows)  # type: ignore[operator]
    ET.fromstring(chart.picture())


def test_nothing_to_draw() -> None:
    short = compared(64, until_ps=1000)
    assert completions(short) is not None  # ring ends whenever it does
    schemes = [one for one in short.schemes if one.mean_completion_ns is None]
    none = AggregationResult(
        version="", fabric=short.fabric, jobs=short.jobs, runs=1, jitter=0.0, schemes=schemes,
        assumed=[], warnings=[],
    )  # fmt: skip
    assert completions(none) is None
    none.schemes[:] = []
    assert occupancy(none) is None and on_links(none) is None


def test_the_scale_holds_all_values() -> None:
    assert _decades(0.3, 4.9) == pytest.approx([0.2, 0.5, 1, 2, 5])
    assert _decades(2.0, 2.0) == pytest.approx([2, 5])
