"""Box plots."""

from __future__ import annotations

import replay_traffic

from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.seeds import sweep_result
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeding import SeedRange
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.html.charts.boxes import _quartiles, seeds, strategies

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
    fullest = [
        max(link.over_mean or 0 for link in one.links if link.layer in ("leaf-spine", "spine-leaf"))
        for one in result.strategies
    ]
    assert [row[5] for row in chart.rows] == fullest
    nothing = replay(
        replay_traffic.traffic(FABRIC, [0], [1]), parse_fabric("leaf-spine:leaves=1,spines=1"),
        [], ["x"],
    )  # fmt: skip
    assert strategies(nothing) is None


def test_quartiles() -> None:
    assert _quartiles([1, 2, 3, 4, 5]) == (1, 2, 3, 4, 5)
    assert _quartiles([7]) == (7, 7, 7, 7, 7)
