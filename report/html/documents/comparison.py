"""The report of `compare`."""

from __future__ import annotations

from ....analyzer.results.compare import Comparison
from ...terminal.compare import fill_comparison
from ..charts.changes import changes
from ..page import HtmlPage


def comparison_html(result: Comparison, top: int = 20) -> bytes:
    """The verdict, the figures of both analyses, and what changed."""
    page = HtmlPage(f"rocescope: {result.before} compared with {result.after}")
    fill_comparison(page, result, top, lambda: page.chart(changes(result)))
    return page.document()
