"""Bars of `--vary`."""

from __future__ import annotations

import msgspec

from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.report.html.charts.varied import varied

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"
REQUEST = ReplayRequest(FABRIC, ("jsq", "ecmp"), pattern="permutation:message-size=64kB")


def test_a_bar_per_case_and_strategy() -> None:
    result, _ = replay_varied(REQUEST, ["spines=1,2"])
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
    plain = ReplayRequest(FABRIC, ("ecmp",), pattern="permutation:message-size=64kB")
    result, _ = replay_varied(plain, ["rate=100G,200G"])
    chart = varied(result)
    assert chart is not None and chart.title == "Time of the busiest link by rate"
    assert [row[2] for row in chart.rows] == [one.strategies[0].busy_ns for one in result.varied]
    assert chart.rows[0][2] == 2 * chart.rows[1][2] > 0  # type: ignore[operator]
    assert ">rate=100G<" in chart.svg()  # all bars are of one strategy
