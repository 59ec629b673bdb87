"""Box plots."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import msgspec
import pytest
import replay_traffic
from aggregating import small_jobs
from msgspec.structs import replace

from rocescope.replay.aggregation.compare import aggregation_result
from rocescope.replay.aggregation.request import parse_schemes
from rocescope.replay.aggregation.run import Conditions
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import AggregationResult
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report import human
from rocescope.report.html.replay_charts import (
    _decades,
    _quartiles,
    completions,
    completions_aggregation,
    occupancy,
    on_links,
    queues,
    seeds,
    strategies,
    varied,
)

# Box plots.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


def test_seeds_have_a_box_per_layer_and_the_seed_in_use() -> None:
    traffic = replay_traffic.random_traffic(FABRIC, 60)
    result = sweep_result(
        traffic, FABRIC, {"hash": "crc32"}, SeedRange(0, 50), "equal", "fim-flows", 3, ["x"]
    )
    chart = seeds(result)
    d = result.distribution
    assert chart.columns[-2:] == ("chance", "in use")
    worst = chart.rows[0]
    five = (d.min, d.quantiles["p25"], d.quantiles["p50"], d.quantiles["p75"], d.max)
    assert worst[1:6] == five and list(five) == sorted(five)
    assert result.production is not None
    assert worst[6:] == (result.chance.mean, result.production.value)
    assert [row[0] for row in chart.rows] == ["worst layer", *(one.layer for one in result.layers)]


def test_strategies_have_a_box_of_their_links() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 2, 3] * 4, [4, 5, 6, 7] * 4)
    chosen = [parse_strategy(text) for text in ("ecmp:hash=crc32,seed=7", "assign")]
    result = replay(traffic, FABRIC, chosen, ["x"])
    chart = strategies(result)
    assert chart is not None
    assert [str(row[0]).split()[0] for row in chart.rows] == ["ecmp", "assign"]
    busiest = [
        max(link.over_mean or 0 for link in one.links if link.layer in ("leaf-spine", "spine-leaf"))
        for one in result.strategies
    ]
    assert [row[5] for row in chart.rows] == busiest
    nothing = replay(
        replay_traffic.traffic(FABRIC, [0], [1]), parse_fabric("leaf-spine:leaves=1,spines=1"),
        [], ["x"],
    )  # fmt: skip
    assert strategies(nothing) is None


def test_quartiles() -> None:
    assert _quartiles([1, 2, 3, 4, 5]) == (1, 2, 3, 4, 5)
    assert _quartiles([7]) == (7, 7, 7, 7, 7)


# Completion times of flows.

REQUEST = ReplayRequest(
    "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G",
    ("jsq", "ecmp"),
    pattern="permutation:message-size=100kB",
)


def test_the_share_of_flows_that_are_complete() -> None:
    prepared = PreparedReplay(REQUEST)
    prepared.read(messages=True)
    result = prepared.by_packets(REQUEST.strategies)[0]
    chart = completions(result)
    assert chart is not None and chart.left_out == ""
    for one in result.strategies:
        assert one.packets is not None
        times = sorted(flow.completed_ns or 0 for flow in one.packets.flows)
        rows = [row[1:] for row in chart.rows if str(row[0]).startswith(one.name)]
        assert rows == [(100 * (i + 1) / len(times), time) for i, time in enumerate(times)]
    first = result.strategies[0]
    assert first.packets is not None
    flows = [replace(first.packets.flows[0], completed_ns=None), *first.packets.flows[1:]]
    stuck = replace(first, packets=replace(first.packets, flows=flows, flows_omitted=2))
    some = completions(replace(result, strategies=[stuck]))
    assert some is not None and "1 flow never" in some.svg()
    assert some.rows[0][1] == 30.0 and some.rows[-1][1] == 90.0  # of ten flows
    assert some.left_out == "Of the earliest 2 flows no times are kept."
    times = sorted(flow.completed_ns or 0 for flow in flows[1:])
    assert f"half by {human.duration(times[3])}, " in some.svg()  # the sixth of ten
    known = replace(first.packets, flows_omitted=20)
    late = completions(replace(result, strategies=[replace(first, packets=known)]))
    earliest = human.duration(min(flow.completed_ns or 0 for flow in known.flows))
    assert late is not None and f"more than half by {earliest}, the last" in late.svg()
    never = [replace(flow, completed_ns=None) for flow in known.flows[:5]] + known.flows[5:]
    dead = replace(first.packets, flows=never)
    most = completions(replace(result, strategies=[replace(first, packets=dead)]))
    assert most is not None and "5 flows never" in most.svg() and "half" not in most.svg()
    many = completions(replace(result, strategies=[first] * 6))
    assert many is not None and many.left_out == "2 strategies not shown."
    assert completions(replace(result, strategies=[replace(first, packets=None)])) is None


# Queues over time.

QUEUES_REQUEST = ReplayRequest(
    "leaf-spine:leaves=2,spines=1,hosts=4,rate=100G",
    ("jsq",),
    pattern="incast:fan-in=7,message-size=100kB",
)


def test_the_longest_queue_of_each_layer() -> None:
    prepared = PreparedReplay(QUEUES_REQUEST)
    prepared.read(messages=True)
    (one,) = prepared.by_packets(QUEUES_REQUEST.strategies)[0].strategies
    chart = queues(one)
    assert chart is not None and one.packets is not None
    assert chart.title.startswith("Queues over time, jsq") and chart.left_out == ""
    longest: dict[str, int] = {}
    for link in one.links:
        most = max(link.queue_bytes_over_time or [0])
        longest[link.layer] = max(longest.get(link.layer, 0), most)
    drawn = [max(column) for column in zip(*chart.rows, strict=True)][1:]
    assert drawn == sorted((most for most in longest.values() if most), reverse=True)
    series = {link.name: link.queue_bytes_over_time for link in one.links}
    for column, name in enumerate(chart.columns[1:], 1):
        assert [row[column] for row in chart.rows] == series[name.removesuffix(", B")]
    starts = [row[0] for row in chart.rows]
    assert starts == [one.packets.load_stretch_ns * i for i in range(len(starts))]
    empty = [replace(link, queue_bytes_over_time=[0] * len(starts)) for link in one.links]
    assert queues(replace(one, links=empty)) is None
    assert queues(replace(one, packets=None)) is None


# Bars of `--vary`.

VARIED_FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"
VARIED_REQUEST = ReplayRequest(
    VARIED_FABRIC, ("jsq", "ecmp"), pattern="permutation:message-size=64kB"
)


def test_a_bar_per_case_and_strategy() -> None:
    result, _ = replay_varied(VARIED_REQUEST, ["spines=1,2"])
    chart = varied(result)
    assert chart is not None and chart.title == "Completion by spines"
    assert [row[:2] for row in chart.rows] == [
        ("spines=1", "jsq"),
        ("spines=1", "ecmp"),
        ("spines=2", "jsq"),
        ("spines=2", "ecmp"),
    ]
    first = result.varied[0].strategies[0].completion_ns
    assert first is not None and chart.rows[0][2] == first.mean
    assert "2 cases under jsq, ecmp" in chart.description and "<svg" in chart.svg()
    rows = [msgspec.structs.replace(row, completion_ns=None) for row in result.varied[0].strategies]
    one = msgspec.structs.replace(result.varied[0], strategies=rows)
    mixed = varied(msgspec.structs.replace(result, varied=[one, result.varied[1]]))
    assert mixed is not None and "not completed" in mixed.svg() and mixed.rows[0][2] is None
    assert varied(msgspec.structs.replace(result, varied=[one])) is None


def test_whole_flows_are_compared_by_their_busiest_link() -> None:
    plain = ReplayRequest(VARIED_FABRIC, ("ecmp",), pattern="permutation:message-size=64kB")
    result, _ = replay_varied(plain, ["rate=100G,200G"])
    chart = varied(result)
    assert chart is not None and chart.title == "Time of the busiest link by rate"
    assert [row[2] for row in chart.rows] == [one.strategies[0].busy_ns for one in result.varied]
    assert chart.rows[0][2] == 2 * chart.rows[1][2] > 0  # type: ignore[operator]
    assert ">rate=100G<" in chart.svg()  # all bars are of one strategy


# Charts of aggregation: lines over memory, bars, memory over time.

JOBS, AGGREGATION_FABRIC = small_jobs("count=2,workers=3,fragments=300,window=32,iterations=2")
ALL = parse_schemes(["atp", "esa", "switchml", "ideal", "none", "ring"])


def compared(*slots: int, **changes: int) -> AggregationResult:
    return aggregation_result(ALL, slots, JOBS, AGGREGATION_FABRIC, Conditions(0, **changes), 1)


@pytest.fixture(scope="module")
def several() -> AggregationResult:
    return compared(40, 128, 512)


def test_a_line_per_scheme_over_memory(several: AggregationResult) -> None:
    chart = completions_aggregation(several)
    assert chart is not None and chart.columns == ("scheme", "slots", "ms")
    assert len(chart.rows) == 3 * 3 + 3
    picture = ET.fromstring(chart.picture())
    lines = [one for one in picture.iter() if one.tag.endswith("polyline")]
    assert [len((line.get("points") or "").split()) for line in lines] == [3, 3, 3]
    names = {one.name for one in several.schemes}
    labels = sorted(
        float(one.get("y") or 0)
        for one in picture.iter()
        if one.tag.endswith("text") and one.text in names and float(one.get("x") or 0) > 300
    )
    assert len(labels) == 6
    assert all(b - a >= 12.9 for a, b in pairwise(labels))


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_times_of_the_axis_are_not_cut(several: AggregationResult, factor: float) -> None:
    schemes = [
        replace(one, mean_completion_ns=(one.mean_completion_ns or 0) * factor)
        for one in several.schemes
    ]
    chart = completions_aggregation(replace(several, schemes=schemes))
    assert chart is not None
    texts = [one for one in ET.fromstring(chart.picture()).iter() if one.tag.endswith("text")]
    times = [one for one in texts if float(one.get("x") or 0) < 60]
    assert len(times) > 1
    # Seven pixels a character, on average.
    assert all(float(one.get("x") or 0) >= 7 * len(one.text or "") for one in times)


def test_bars_with_one_memory_and_for_the_fullest_link() -> None:
    one = compared(64)
    chart, links = completions_aggregation(one), on_links(one)
    assert chart is not None and links is not None
    assert [row[0] for row in chart.rows] == [
        "atp 64", "esa 64", "switchml 64", "ideal", "none", "ring",
    ]  # fmt: skip
    means = [s.mean_completion_ns for s in one.schemes]
    assert [row[1] for row in chart.rows] == [pytest.approx((m or 0) / 1e6) for m in means]
    assert dict(links.rows)["none"] > dict(links.rows)["atp 64"]  # type: ignore[operator]


def test_memory_over_time(several: AggregationResult) -> None:
    chart = occupancy(several)
    assert chart is not None
    assert {row[0] for row in chart.rows} == {
        f"{name} {slots}" for name in ("atp", "esa") for slots in (40, 128, 512)
    }
    assert all(0 <= row[3] <= row[2] <= 100.001 for row in chart.rows)  # type: ignore[operator]
    ET.fromstring(chart.picture())


def test_nothing_to_draw() -> None:
    short = compared(64, until_ps=1000)
    assert completions_aggregation(short) is not None  # ring ends whenever it does
    schemes = [one for one in short.schemes if one.mean_completion_ns is None]
    none = AggregationResult(
        version="", fabric=short.fabric, jobs=short.jobs, runs=1, jitter=0.0, schemes=schemes,
        assumed=[], warnings=[],
    )  # fmt: skip
    assert completions_aggregation(none) is None
    none.schemes[:] = []
    assert occupancy(none) is None and on_links(none) is None


def test_the_scale_holds_all_values() -> None:
    assert _decades(0.3, 4.9) == pytest.approx([0.2, 0.5, 1, 2, 5])
    assert _decades(2.0, 2.0) == pytest.approx([2, 5])
