"""The report of an analysis."""

from __future__ import annotations

import factories_results as factories
import msgspec
import pytest
from hostile_texts import hostile
from html_checks import checked

from rocescope.analyzer.results.analysis import Analysis
from rocescope.report.html.documents.analysis import analysis_html


def test_the_diagnosis_comes_first_and_trust_last() -> None:
    words = checked(analysis_html(factories.analysis()))
    order = ["Diagnosis", "spine2 drops", "Next:", "Healthy", "Charts", "Traffic over time",
             "Bytes per path", "Reordering", "Loss and recovery",
             "How far the data can be trusted"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "loss, reordering" not in words


def test_what_limits_trust_is_named() -> None:
    analysis = factories.doubtful_analysis()
    words = checked(analysis_html(analysis))
    last = words[words.index("How far the data can be trusted") :]
    for warning in analysis.warnings:
        assert " ".join(warning.split()) in last
    for limit in analysis.diagnosis.limits:
        assert limit in last
    assert "Limits of trust: " in words


def test_an_interrupted_analysis_says_so() -> None:
    cut = msgspec.structs.replace(factories.clean_analysis(), complete=False)
    assert "The analysis was interrupted" in checked(analysis_html(cut))


@pytest.mark.parametrize("make", [factories.analysis, factories.doubtful_analysis])
def test_no_text_of_a_result_is_markup(make: object) -> None:
    made = make() if callable(make) else None
    assert isinstance(made, Analysis)
    words = checked(analysis_html(hostile(made)))
    assert "<script>alert(1)</script>" in words


def test_any_size_stays_bounded() -> None:
    """10,000 flows, 300 long findings, 500 taps: counted, not listed."""
    made = factories.analysis()
    long = hostile(made.diagnosis, "x" * 3_000)
    taps = {f"tap{i}": [1] * 10 for i in range(500)}
    many = msgspec.structs.replace(
        made,
        flows=[msgspec.structs.replace(made.flows[i % 6], id=i) for i in range(10_000)],
        diagnosis=msgspec.structs.replace(long, findings=long.findings * 150),
        hops=made.hops * 3_000,
        warnings=["y" * 5_000] * 400,
        series=msgspec.structs.replace(made.series, tap_wire_bytes=taps),
    )
    page = analysis_html(many)
    words = checked(page)
    assert len(page) < 800_000
    assert "9,980 flows not shown here" in words
    assert "250 findings not shown here" in words
    assert "380 warnings not shown here" in words
