"""Parts of a report on an HTML page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import factories_results as factories
import msgspec
import polars as pl
import pytest
import replay_traffic
from aggregating import small_jobs
from answers import recorded, traffic_of, truth
from hostile_texts import hostile
from html_checks import checked
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.diagnosis import Place
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
from rocescope.report.html.page import (
    _DARK,
    LARGEST,
    LIGHT,
    LONGEST,
    POLICY,
    STYLE,
    Chart,
    Drawing,
    HtmlPage,
    escape,
    shorten,
    ticks,
)
from rocescope.report.terminal.page import folded, numbers, texts

# Parts of a report on an HTML page.


def test_sections_paragraphs_and_tables() -> None:
    page = HtmlPage("a <b>")
    page.section("Loss & co", "One packet.", good=True)
    page.warn(["cut <short>"])

    def fill(table: Table) -> None:
        texts(table, "flow")
        numbers(table, "packets", "empty")
        folded(table, "path")
        table.add_row("a>b", Text("● 3", "bold red"), "-", "x")
        table.add_row("c", "?", "-", Text("▁▂█ ++", "cyan"))

    page.draw(fill, drop=True)
    page.more(3, "flow")
    page.more(0, "flow")
    document = page.document()
    words = checked(document)
    assert "Loss & co ✓One packet.▲ cut <short>" in words
    assert "flowpacketspatha>b● 3xc?▁▂█ ++" in words
    assert "… 3 flows not shown here" in words
    text = document.decode()
    assert '<td class="n bad">● 3</td>' in text
    assert '<span class="bars" aria-hidden="true">▁▂█ ++</span>' in text
    assert f'content="{POLICY}"' in text and "empty" not in words
    assert page.unknowns


def test_a_page_stays_below_its_limit_and_says_so() -> None:
    page = HtmlPage("much")
    for number in range(3):
        page.section(f"Part {number}")
        for _ in range(900):
            page.say("&" * 400)
    document = page.document()
    assert LARGEST < len(document) < 2_000_000
    words = checked(document)
    assert "parts of this report not shown: it is limited to 2 MB" in words
    assert "Part 0" in words


def test_what_follows_a_heading_that_does_not_fit_is_left_out_with_it() -> None:
    page = HtmlPage("much")
    page.section("Fits")
    page.add(f"<p>{'x' * (LARGEST - 150)}</p>")
    page.section("A heading that is too long " * 5)
    page.say("of it")
    page.section("B")
    page.say("its own")
    words = checked(page.document())
    assert "of it" not in words and "Bits own" in words and "2 parts" in words


# Texts in pages.

# Texts in pages.


def test_markup_and_steering_characters() -> None:
    assert escape("<a href=\"x\" id='y'>&") == "&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;"
    assert escape("a\x1b[2J\u202eb\nc") == "a?[2J?b?c"


@given(st.text())
def test_no_text_leaves_its_place(text: str) -> None:
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    assert escaped.isprintable()
    assert unescape(escaped) == "".join(c if c.isprintable() else "?" for c in text)


def test_a_long_text_is_cut() -> None:
    assert escape("x" * (LONGEST + 1)) == "x" * LONGEST + "…"
    assert escape("x" * LONGEST) == "x" * LONGEST


# The style sheet: contrast of its colours.


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb or #rgb (WCAG 2.2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, _DARK], ids=["light", "dark"])
def test_texts_are_readable_on_both_backgrounds(colours: str) -> None:
    named = dict(re.findall(r"--(\w+):(#\w+);", colours))
    for name in ("ink", "soft", "bad", "warn", "note", "one", "two", "three"):
        least = 3 if name in ("one", "two") else 4.5
        for ground in ("paper", "panel"):
            assert contrast(named[name], named[ground]) >= least, (name, ground)


def test_the_sheet_is_whole_and_asks_for_nothing() -> None:
    assert STYLE.count("{") == STYLE.count("}")
    assert "url(" not in STYLE and "@import" not in STYLE


# Pictures and scales.


@given(st.floats(min_value=1e-9, max_value=1e18))
def test_ticks_are_even_and_reach_the_largest_value(most: float) -> None:
    scale = ticks(most)
    assert scale[0] == 0 and scale[-1] >= most * (1 - 1e-6)
    assert 2 <= len(scale) <= 9
    assert scale[1] == pytest.approx(scale[-1] - scale[-2])
    assert scale[-2] < most


@pytest.mark.parametrize("most", [0, -1, float("nan"), float("inf")])
def test_ticks_of_nothing(most: float) -> None:
    assert ticks(most) == [0.0, 1.0]


def test_a_picture_has_its_role_its_title_and_its_description() -> None:
    drawing = Drawing(10)
    drawing.rect(0, 1, 2.25, 3, "one", 0.06)
    drawing.text(1, 2, "a<b", "soft", "end")
    root = ET.fromstring(drawing.svg("A & B", "what <it> shows", "c1"))
    assert root.get("role") == "img" and root.get("aria-labelledby") == "c1-t c1-d"
    title, description, rect, text = root
    assert (title.get("id"), title.text) == ("c1-t", "A & B")
    assert (description.get("id"), description.text) == ("c1-d", "what <it> shows")
    assert rect.get("fill-opacity") == "0.06" and rect.get("width") == "2.2"
    assert text.text == "a<b" and text.get("text-anchor") == "end"


@given(st.text(max_size=60), st.integers(min_value=3, max_value=30))
def test_a_label_loses_its_middle(text: str, longest: int) -> None:
    short = shorten(text, longest)
    assert len(short) <= longest
    assert short == text if len(text) <= longest else short[0] == text[0]


# A chart and its numbers.

CHART = Chart("Loads", "Two links.", Drawing(5), ("link", "bytes"), [("<a>", 1_234), ("b", None)])


def test_the_numbers_stand_below_the_picture() -> None:
    words = checked(CHART.figure("c1").encode())
    assert "Loads. Two links." in words
    assert "Numbers: Loadslinkbytes<a>1,234b?" in words
    left_out = Chart("L", "D.", Drawing(5), ("x",), [], "One link is not shown.")
    assert "D. One link is not shown." in checked(left_out.figure("c").encode())


def test_the_numbers_are_a_table_of_any_library() -> None:
    assert pl.DataFrame(CHART).rows() == [("<a>", 1_234), ("b", None)]
    assert CHART.to_arrow().column_names == ["link", "bytes"]


def test_a_notebook_shows_the_picture_with_its_own_style() -> None:
    root = ET.fromstring(CHART._repr_svg_())
    assert [part.tag.split("}")[1] for part in root] == ["style", "title", "desc"]
    assert repr(CHART) == "<Chart: Loads>"
    other = Chart("Other", "", CHART.drawing, (), [])
    ids = {ET.fromstring(chart.picture())[1].get("id") for chart in (CHART, other)}
    assert len(ids) == 2  # a notebook is one page


# The report of `aggregate`.

# The report of `aggregate`.


def test_the_verdict_then_charts_then_tables() -> None:
    jobs, fabric = small_jobs("count=2,workers=3,fragments=100,window=32,iterations=2")
    schemes = parse_schemes(["atp", "none"])
    result = aggregation_result(schemes, [48], jobs, fabric, Conditions(0), 1)
    words = checked(aggregation_html(result))
    order = ["2 jobs, 6 workers, 1 run", "is the fastest with limited memory",
             "Mean job completion time.", "Switch memory in use.", "Bytes on the busiest link.",
             "Completion times of jobs", "Busiest links",
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
    order = ["run.pcap: 16 flows", "times the fair share of bytes on the busiest link",
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
    order = ["Diagnosis", "spine2 drops", "Traffic over time", "Next:", "Healthy", "Charts",
             "Bytes per path", "Reordering", "Loss and recovery",
             "How far the data can be trusted"]  # fmt: skip
    places = [words.index(head) for head in order]
    assert places == sorted(places)
    assert "loss, reordering" not in words


def test_a_finding_has_its_time_of_day_and_the_tap_before_the_host() -> None:
    analysis = factories.analysis()
    finding = analysis.diagnosis.findings[0]
    place = Place(to_tap="leaf1-spine2", direction="before the tap", host="10.0.1.3", dest_qp=17)
    seen = msgspec.structs.replace(
        finding, place=place, from_ns=factories.START_NS + 5, until_ns=None
    )
    analysis = msgspec.structs.replace(
        analysis, diagnosis=msgspec.structs.replace(analysis.diagnosis, findings=[seen])
    )
    words = checked(analysis_html(analysis))
    assert words.index("captured 2023-11-14 22:13:20.000 to") < words.index("Diagnosis")
    assert "2023-11-14 22:13:20.000000005 UTC to the end" in words
    assert "before leaf1-spine2; 10.0.1.3 QP 0x000011" in words


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
