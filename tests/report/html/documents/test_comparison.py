"""The report of a comparison."""

from __future__ import annotations

import factories_results as factories
from hostile_texts import hostile
from html_checks import checked

from rocescope.report.compare import compare
from rocescope.report.html.documents.comparison import comparison_html


def test_the_verdict_comes_first() -> None:
    result = compare(factories.clean_analysis(), factories.analysis(), ("a.json", "b.json"))
    words = checked(comparison_html(result))
    order = ["a.json compared with b.json", "a.json → b.json: worse", "Figures of all flows",
             "Packets with anomalies, before and after", "Flows"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "<script>" in checked(comparison_html(hostile(result)))
