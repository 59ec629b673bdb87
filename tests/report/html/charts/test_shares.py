"""Bytes per path."""

from __future__ import annotations

import factories_results as factories
import msgspec
import replay_traffic

from rocescope.analyzer.results.paths import Imbalance
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.html.charts.shares import MOST, links, paths

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


def imbalance(sizes: list[int]) -> Imbalance:
    shares = [
        msgspec.structs.replace(factories.path(str(i), 1, size / sum(sizes)), wire_bytes=size)
        for i, size in enumerate(sizes)
    ]
    return msgspec.structs.replace(
        factories.imbalance(), paths=len(sizes), shares=shares, wire_bytes=sum(sizes)
    )


def test_columns_and_the_fair_line() -> None:
    chart = paths(imbalance([400, 100, 100, 0]))
    assert [row[:4] for row in chart.rows] == [
        ("0", 400, 150, 400 / 150), ("1", 100, 150, 100 / 150),
        ("2", 100, 150, 100 / 150), ("3", 0, 150, 0),
    ]  # fmt: skip
    svg = chart.svg()
    heights = [float(part.split('"')[0]) for part in svg.split('height="')[1:]]
    assert heights[0] == 4 * heights[1] and heights[3] == 0
    assert svg.count('class="fair"') == 1 and "dashed: fair share 150 B" in svg
    assert svg.count(">++<") == 1 and svg.count(">--<") == 3
    assert "The fullest is 0 with 400 B, 2.67 times its fair share" in chart.description


def test_of_many_paths_the_fullest_are_shown() -> None:
    chart = paths(imbalance(list(range(1, 101))))
    assert [row[1] for row in chart.rows] == list(range(100, 100 - MOST, -1))
    assert chart.left_out == "The 64 fullest of 100 paths are shown."


def test_links_of_a_layer_with_a_strategy() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 2] * 4, [4, 5, 6] * 4)
    (one,) = replay(traffic, FABRIC, [parse_strategy("ecmp:seed=1")], ["x"]).strategies
    chart = links(one, "leaf-spine")
    assert chart is not None
    loads = {link.name: link.wire_bytes for link in one.links if link.layer == "leaf-spine"}
    assert {row[0]: row[1] for row in chart.rows} == loads
    assert links(one, "no such layer") is None
    assert ", placed by ecmp" in chart.description
    measured = links(
        msgspec.structs.replace(one, name="as captured", title="as captured"), "leaf-spine"
    )
    assert measured is not None and "of layer leaf-spine, as captured." in measured.description
