"""The reports of replay, sweep and recover-seed as they are printed."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import replay_traffic
from msgspec.structs import replace

from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.seeds import sweep_result
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeding import SeedRange
from rocescope.replay.results.replay import ReplayResult
from rocescope.replay.results.sweep import SweepResult
from rocescope.replay.seeds.recover import Wanted, recover_all
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.terminal.page import Page, page_on
from rocescope.report.terminal.recover import fill_recovery
from rocescope.report.terminal.replay import fill_replay, verdict
from rocescope.report.terminal.sweep import fill_sweep

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")


@pytest.fixture(scope="module")
def compared() -> ReplayResult:
    traffic = replay_traffic.traffic(
        FABRIC, [0, 1, 2, 3] * 4, [4, 5, 6, 7] * 4, windows=[(i, i % 3, 1000) for i in range(16)]
    )
    strategies = [parse_strategy(text) for text in ("ecmp:hash=crc32,seed=7", "static", "assign")]
    return replay(traffic, FABRIC, strategies, ["run.pcap"])


@pytest.fixture(scope="module")
def swept() -> SweepResult:
    traffic = replay_traffic.random_traffic(FABRIC, 60)
    return sweep_result(
        traffic, FABRIC, {"hash": "crc32"}, SeedRange(0, 200), "equal", "fim-flows", 3, ["run.pcap"]
    )


def printed(fill: Callable[[Page], None], encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    fill(page_on(stream))
    stream.seek(0)
    return stream.read()


def test_the_best_strategy_comes_first(compared: ReplayResult) -> None:
    ecmp, static, assign = compared.strategies
    assert static.lower_bound_ns == assign.lower_bound_ns
    text = printed(lambda page: fill_replay(page, compared))
    assert text.startswith("run.pcap: 16 flows, 16.0 kB, 8 hosts\n")
    assert verdict(compared).startswith("static (by=round-robin) puts 1.00 times the fair share")
    for heading in ("STRATEGIES", "ECMP (HASH=CRC32, SEED=7)", "STATIC (BY=ROUND-ROBIN)", "ASSIGN"):
        assert f"\n{heading}\n" in text
    assert "Per window" in text and "concurrent" in text
    assert "leaf-host" not in text  # nothing is chosen there


def test_no_table_of_layers_without_a_choice() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0], [1], windows=[(0, 0, 1000)])
    result = replay(traffic, FABRIC, [parse_strategy("static")], ["run.pcap"])
    text = printed(lambda page: fill_replay(page, result))
    assert "No strategy had a choice of links" in text
    assert "layer  links" not in text


def test_equal_strategies_are_told_so(compared: ReplayResult) -> None:
    import msgspec

    same = msgspec.structs.replace(compared, strategies=[compared.strategies[1]] * 2)
    assert verdict(same).endswith("between switches; the other strategies do the same.")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lines_fit(
    compared: ReplayResult,
    swept: SweepResult,
    width: int,
    encoding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for fill in (
        lambda page: fill_replay(page, compared),
        lambda page: fill_sweep(page, swept),
    ):
        text = printed(fill, encoding)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii() or encoding != "ascii"


def test_a_sweep_says_what_it_means(swept: SweepResult) -> None:
    text = printed(lambda page: fill_sweep(page, swept))
    plain = " ".join(text.split())
    assert "crc32 (5-tuple), 200 seeds of 0:200, equal on the switches" in plain
    assert "Every seed gives the same imbalance" in plain and "Seed 3 has" in plain
    assert "ideal random hashing gives" in plain
    assert "best seeds" not in text  # all are equal
    other = replace(swept.distribution, max=swept.distribution.min + 1)
    text = printed(lambda page: fill_sweep(page, replace(swept, distribution=other)))
    assert "best seeds" in text and "worst seeds" in text


def test_a_recovery_is_told_plainly() -> None:
    import numpy as np

    from rocescope.replay.hashing.models import bind
    from rocescope.replay.hashing.settings import Group, HashSettings
    from rocescope.replay.seeds.tapped import Direction, Seen

    keys = replay_traffic.random_traffic(FABRIC, 60).keys
    group = Group(np.ones(4, np.int64))
    link = bind(keys, HashSettings("linux")).choose([500], group)[0].astype(np.int32)
    zeros = np.zeros(60, np.int64)
    names = tuple(f"spine{i}.pcap" for i in range(4))
    seen = Seen(names, keys, link, zeros.astype(np.uint8), zeros, zeros, ("10.0.0.1",))
    for seeds, told in (
        (SeedRange(0, 2000), "✓ Linux policy 1, seed 500"),
        (SeedRange(0, 9), "▲ No hash fits all flows"),
    ):
        result = recover_all(
            [Direction("from 10.0.0.0/24", seen)], Wanted("linux", seeds=seeds), ["x"], None
        )
        text = printed(lambda page, result=result: fill_recovery(page, result))
        assert "PACKETS FROM 10.0.0.0/24" in text and told in text
        assert "spine3.pcap" in text and "Tried: linux policy 1" in text
