"""The report of `aggregate`."""

from __future__ import annotations

from aggregating import small_jobs
from hostile_texts import hostile
from html_checks import checked

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.report.html.documents.aggregation import aggregation_html


def test_the_verdict_then_charts_then_tables() -> None:
    jobs, fabric = small_jobs("count=2,workers=3,fragments=100,window=32,iterations=2")
    schemes = parse_schemes(["atp", "none"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0), 1)
    words = checked(aggregation_html(result))
    order = ["2 jobs, 6 workers, 1 run", "is the fastest with limited memory",
             "Mean job completion time.", "Switch memory in use.", "Bytes on the fullest link.",
             "Completion times of jobs", "Fullest links",
             "Assumed"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "<script>" in checked(aggregation_html(hostile(result)))
