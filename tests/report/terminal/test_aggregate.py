"""The report of `aggregate`."""

from __future__ import annotations

import io

import pytest
from aggregating import small_jobs

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.report.terminal.aggregate import fill_aggregation, verdict
from rocescope.report.terminal.page import page_on


def test_the_report_names_the_fastest_and_what_is_assumed():
    jobs, fabric = small_jobs("count=2,workers=3,fragments=100,window=32,iterations=2")
    schemes = parse_schemes(["atp", "esa", "ideal", "none"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0), 1)
    page = io.StringIO()
    fill_aggregation(page_on(page, "never"), result, top=2)
    text = page.getvalue()
    assert "2 jobs, 6 workers, 1 run" in text
    fastest = min(result.schemes[:2], key=lambda one: one.mean_completion_ns or 0)
    assert verdict(result).startswith(f"{fastest.name} 48 is the fastest with limited memory")
    assert "no aggregation takes" in verdict(result)
    for heading in ("SCHEMES", "COMPLETION TIMES OF JOBS", "FULLEST LINKS", "ASSUMED"):
        assert heading in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_a_ring_is_said_to_have_no_losses(loss: float):
    jobs, fabric = small_jobs("count=1,workers=3,fragments=100,window=32,iterations=1")
    schemes = parse_schemes(["atp:rto=50us", "ring"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0, loss=loss), 1)
    assert bool(result.schemes[0].lost) == bool(loss)
    assert ("ring all-reduce among the workers without these losses" in verdict(result)) == bool(
        loss
    )
