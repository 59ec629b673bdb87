"""The report of `aggregate`."""

from __future__ import annotations

from pathlib import Path

import factories_results as factories
import msgspec
import pytest
import replay_traffic
from aggregating import small_jobs
from answers import recorded, traffic_of, truth
from hostile_texts import hostile
from html_checks import checked

from rocescope.analyzer.results.analysis import Analysis
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.trace import trace
from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import ReplayResult
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.compare import compare
from rocescope.report.html.documents import (
    aggregation_html,
    analysis_html,
    comparison_html,
    replay_html,
    sweep_html,
    trace_html,
)

# The report of `aggregate`.


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


# The report of a comparison.


def test_the_verdict_comes_first() -> None:
    result = compare(factories.clean_analysis(), factories.analysis(), ("a.json", "b.json"))
    words = checked(comparison_html(result))
    order = ["a.json compared with b.json", "a.json → b.json: worse", "Figures of all flows",
             "Packets with anomalies, before and after", "Flows"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "<script>" in checked(comparison_html(hostile(result)))


# The reports of replays, sweeps and traces.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


@pytest.fixture(scope="module")
def compared() -> ReplayResult:
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 4, 5] * 4, [4, 5, 0, 1] * 4)
    strategies = [parse_strategy(text) for text in ("ecmp:hash=crc32,seed=7", "static", "assign")]
    return replay(traffic, FABRIC, strategies, ["run.pcap"])


def test_a_replay_shows_the_verdict_then_the_loads_then_each_strategy(
    compared: ReplayResult,
) -> None:
    words = checked(replay_html(compared))
    order = ["run.pcap: 16 flows", "times the fair share of bytes on the fullest link",
             "Load of the links by strategy", "Bytes per link, leaf-spine, ecmp",
             "Load of the links, leaf-spine, ecmp", "Bytes per link, spine-leaf, assign",
             "worst links"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "<script>" in checked(replay_html(hostile(compared)))


def test_a_sweep_shows_its_boxes() -> None:
    traffic = replay_traffic.random_traffic(FABRIC, 60)
    result = sweep_result(
        traffic,
        FABRIC,
        {"hash": "jenkins"},
        SeedRange(0, 50),
        "equal",
        "fim-flows",
        3,
        ["run.pcap"],
    )
    words = checked(sweep_html(result))
    order = ["Imbalance of the worst layer: best seed", "Imbalance over hash seeds.",
             "Distribution of the worst layer", "best seeds"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)


def test_a_trace_shows_what_is_known_first(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    result = trace(units, fabric, [parse_strategy("static")], ["x"])
    words = checked(trace_html(result))
    order = ["The path of 256 of 256 flows is known", "Load of the links by strategy",
             "Largest flows"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "<script>" in checked(trace_html(hostile(result)))


# The report of an analysis.


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
