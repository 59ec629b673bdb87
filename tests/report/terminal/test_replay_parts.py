"""Numbers and titles that reports of replays share."""

from __future__ import annotations

import msgspec
import replay_traffic

from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.results.base import Chance
from rocescope.replay.results.replay import AS_CAPTURED
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.terminal.replay_parts import (
    NONE,
    captured_links,
    chance_text,
    factor,
    fim,
)


def test_unknown_numbers_are_a_dash() -> None:
    assert fim(None) == factor(None) == chance_text(None) == NONE
    assert (fim(12.34), factor(1.005)) == ("12.3", "1.00")


def test_chance_has_its_range() -> None:
    assert chance_text(Chance(mean=24.23, p05=18.4, p95=31.2, draws=9)) == "24.2 (18 to 31)"


def test_loads_over_fewer_links_than_those_of_the_strategies_say_so() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")
    traffic = replay_traffic.traffic(fabric, [0, 1], [4, 5])
    (one,) = replay(traffic, fabric, [parse_strategy("static")], ["a.pcap"]).strategies
    row = msgspec.structs.replace(one, name=AS_CAPTURED)
    assert captured_links([row, one]) == captured_links([one]) == ""
    few = [msgspec.structs.replace(layer, links=layer.links // 2) for layer in one.layers]
    told = captured_links([msgspec.structs.replace(row, layers=few), one])
    links = sum(layer.links for layer in one.layers if layer.choice)
    assert f"{links // 2} captured links" in told and f"all {links}." in told
