"""The table of the example in docs/replay.md is what the commands give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocescope.analyzer.measures.spraying import expected_fim
from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.specs import generated
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.strategies.registry import PACKET_STRATEGIES, STRATEGIES, parse_strategy

ROW = re.compile(r"\| `(leaf-spine:[^`]+)` \| `([^`]+)` \|(.+)\|")


@pytest.mark.thorough
def test_the_example_has_the_numbers_that_come_out(checkout: Path) -> None:
    rows = ROW.findall((checkout / "docs" / "replay.md").read_text())
    assert len(rows) == 4
    for spec, pattern, cells in rows:
        flows, ecmp, chance, static, assign = (cell.strip() for cell in cells.split("|"))
        fabric = parse_fabric(spec)
        traffic = generated(pattern, fabric, None)
        layer = sweep_result(
            traffic, fabric, {}, SeedRange(0, 10_000), "different", "fim-flows", None, []
        ).layers[0]
        found = layer.distribution
        low, high = found.quantiles["p5"], found.quantiles["p95"]
        assert layer.layer == "leaf-spine"
        assert ecmp == f"{found.mean:.1f} ({low:.0f} to {high:.0f})"
        leaves = 2 if "leaves=2" in spec else 4
        exact = expected_fim(int(flows) // leaves, layer.links // leaves)
        assert chance == f"{exact:.1f}"
        assert found.mean == pytest.approx(exact, abs=0.4)
        both = replay(traffic, fabric, [parse_strategy("static"), parse_strategy("assign")], [])
        for one, cell in zip(both.strategies, (static, assign), strict=True):
            up = next(record for record in one.layers if record.layer == "leaf-spine")
            assert cell == f"{up.fim_flows_percent:.1f}" and flows == str(up.flows)


def test_every_strategy_is_on_the_page(checkout: Path) -> None:
    page = (checkout / "docs" / "replay.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)`.*? \| (\w+) \|", page, re.MULTILINE))
    assert {name for name, decides in rows.items() if decides == "flows"} == set(STRATEGIES)
    by_packet = {name for name, decides in rows.items() if decides in ("switch", "host")}
    assert by_packet == set(PACKET_STRATEGIES)
