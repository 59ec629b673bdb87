"""The distribution of the reordering extent."""

from __future__ import annotations

import factories_results as factories
import msgspec

from rocescope.analyzer.results.base import HistogramBin
from rocescope.report.html.charts.extents import extents


def test_octaves_sum_over_flows() -> None:
    bins = [HistogramBin(1, 2, 5), HistogramBin(2, 3, 4), HistogramBin(3, 4, 3)]
    bins += [HistogramBin(8, 16, 8)]
    sprayed = factories.sprayed_flow(0)
    assert sprayed.reordering is not None
    record = msgspec.structs.replace(sprayed.reordering, extent_histogram=bins, max_extent=14)
    flow = msgspec.structs.replace(sprayed, reordering=record)
    chart = extents([flow, flow, factories.flow(1, 100)])
    assert chart is not None
    assert [(label, count) for label, count, *_ in chart.rows] == [
        ("1", 10), ("2 to 3", 14), ("4 to 7", 0), ("8 to 15", 16)
    ]  # fmt: skip
    assert [row[3] for row in chart.rows] == [25, 60, 60, 100]
    assert "40 late packets of 2 flows; half have an extent of at most 3 packets" in (
        chart.description
    )


def test_nothing_late_is_no_chart() -> None:
    assert extents([factories.flow(0, 100)]) is None
    assert extents([]) is None
