"""The report of `aggregate`."""

from __future__ import annotations

from ....replay.results.aggregation import AggregationResult
from ...terminal.aggregate import fill_aggregation
from ..charts.aggregation import completions, occupancy, on_links
from ..page import HtmlPage


def aggregation_html(result: AggregationResult, top: int = 5) -> bytes:
    """The verdict, completion times, memory and links of the schemes, then their tables."""
    page = HtmlPage(f"rocescope: aggregation on {result.fabric.spec}")

    def charts() -> None:
        for chart in (completions(result), occupancy(result), on_links(result)):
            page.chart(chart)

    page.section("Result")
    fill_aggregation(page, result, top, charts)
    return page.document()
