"""Figures before and after."""

from __future__ import annotations

import factories_results as factories

from rocescope.report.compare import compare
from rocescope.report.html.charts.changes import changes


def test_shares_of_both_sides() -> None:
    before = factories.clean_analysis()
    result = compare(before, factories.analysis(), ("a", "b"))
    chart = changes(result)
    assert chart is not None
    shares = {row[0]: row[1:] for row in chart.rows}
    after = result.figures_after
    assert after.reordered_packets
    assert shares["reordered"] == (0, 100 * after.reordered_packets / after.packets)
    assert chart.svg().count('class="two"') == 1 + sum(
        bool(before or after) for before, after in shares.values()
    )


def test_nothing_wrong_is_no_chart() -> None:
    clean = factories.clean_analysis()
    assert changes(compare(clean, clean, ("a", "b"))) is None
