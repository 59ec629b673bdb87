"""The reports of replays, sweeps and traces."""

from __future__ import annotations

from pathlib import Path

import pytest
import replay_traffic
from answers import recorded, traffic_of, truth
from hostile_texts import hostile
from html_checks import checked

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.trace import trace
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.seeds import sweep_result
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeding import SeedRange
from rocescope.replay.results.replay import ReplayResult
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.html.documents.replay import replay_html, sweep_html, trace_html

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
