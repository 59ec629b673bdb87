"""The reports of replay, sweep and recover-seed as they are printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace as replace_replay_varied

import pytest
import replay_traffic
from captures import data
from msgspec.structs import replace

from rocescope.replay.compare.captured import sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.results import ReplayResult, SweepResult
from rocescope.replay.seeds.recover import Wanted, recover_all
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.report.files.results import encode
from rocescope.report.terminal.page import Page, page_on
from rocescope.report.terminal.replay import fill_replay, verdict
from rocescope.report.terminal.sweep import fill_recovery, fill_sweep

# The reports of replay, sweep and recover-seed as they are printed.

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


# The table of `--vary`.

REPLAY_VARIED_FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"


def _text(request: ReplayRequest, vary: str, words: bool = False) -> str:
    out = io.StringIO()
    fill_replay(page_on(out), replay_varied(request, [vary])[0])
    return " ".join(out.getvalue().split()) if words else out.getvalue()


def test_rows_and_the_fastest_case() -> None:
    request = ReplayRequest(REPLAY_VARIED_FABRIC, ("jsq",), jobs=("workers=4,size=64kB",))
    text = _text(request, "jobs.size=64kB,256kB")
    best_of = r"jobs\.size=64kB, (.*) us: (.*) % less than the worst, jobs\.size=256kB, (.*) us\."
    told = re.search(best_of, " ".join(text.split()))
    assert told is not None
    best, less, worst = map(float, told.groups())
    assert best < worst and less == pytest.approx(100 * (1 - best / worst), abs=0.3)
    rows = [line.split() for line in text.splitlines() if line.startswith(("64kB ", "256kB "))]
    assert len(rows) == 4 and rows[0][:2] == ["64kB", "jsq"]  # completion, then times of jobs
    assert "lost" not in text and "pauses" not in text
    csv = encode(replay_varied(request, ["jobs.size=64kB,256kB"])[0], "csv").decode()
    assert csv.splitlines()[0].startswith("jobs.size,name,title,parameters,completion_ns")
    assert len(csv.splitlines()) == 3


def test_no_case_completes() -> None:
    request = ReplayRequest(
        REPLAY_VARIED_FABRIC, ("jsq",), pattern="incast:fan-in=3,message-size=256kB"
    )
    text = _text(request, "buffer=20kB,30kB", words=True)
    assert "2 cases; packets are lost, and no case completes: --transport recovers them." in text


def test_whole_flows_have_no_completion() -> None:
    plain = ReplayRequest(REPLAY_VARIED_FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "rate=100G,200G", words=True)
    assert "busy for" in text and "completion" not in text
    assert "Best is rate=200G, the busiest link is busy for" in text
    assert "us: 50.0 % less than the worst, rate=100G, " in text


def test_one_case_is_told_to_take_several_and_equal_cases_that_they_are() -> None:
    plain = ReplayRequest(REPLAY_VARIED_FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "spines=2", words=True)
    assert (
        "One case: spines=2, " in text and "several values to compare: --vary spines=A,B." in text
    )
    text = _text(plain, "delay=1us,2us", words=True)
    assert "All 2 cases alike: the busiest link is busy for" in text
    several = replace_replay_varied(plain, strategies=("ecmp", "wcmp"))
    assert "All 2 cases alike: " in _text(several, "delay=1us,2us", words=True)
    text = _text(plain, "spines=2,4", words=True)
    assert "us; the fullest link has 2.00 (spines=2) to 4.00 (spines=4) times its fair" in text


def test_captured_times_are_said_to_set_the_completion() -> None:
    taps = sorted((data("leafspine") / "r01_clean_write").glob("H1*.pcap.xz"))
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2,delay=500ns"
    request = ReplayRequest(fabric, ("ecmp",), tuple(map(str, taps)), map="order")
    text = _text(replace_replay_varied(request, packets=True), "rate=100G,200G", words=True)
    assert "All 2 cases alike: 1." in text
    assert "offered at their captured times" in text
    text = _text(replace_replay_varied(request, model="offer=asap"), "rate=100G,200G", words=True)
    assert "captured times" not in text and "Best is rate=200G, " in text


def test_the_best_strategy_is_named() -> None:
    wide = REPLAY_VARIED_FABRIC.replace("hosts=2", "hosts=8")
    request = ReplayRequest(wide, ("ecmp", "jsq"), pattern="permutation:message-size=64kB")
    text = _text(request, "spines=1,2", words=True)
    assert re.search(r"Best is spines=2 with jsq, [0-9.]+ us\. ", text)


def test_each_strategy_is_compared_with_itself() -> None:
    """What ecmp loses against jsq is not what the values change."""
    wide = REPLAY_VARIED_FABRIC.replace("hosts=2", "hosts=8")
    request = ReplayRequest(wide, ("ecmp", "jsq"), pattern="permutation:message-size=64kB")
    result = replay_varied(request, ["spines=1,2"])[0]
    out = io.StringIO()
    fill_replay(page_on(out), result)
    text = " ".join(out.getvalue().split())
    assert "ecmp: 26.0 us in all cases" in text  # whose seed puts all flows on one spine
    one, two = (case.strategies[1].compared_ns for case in result.varied)
    told = re.search(r"jsq: \S+ us with spines=2, (\S+) % less than \S+ us with spines=1", text)
    assert one is not None and two is not None and told is not None
    assert float(told[1]) == pytest.approx(100 * (1 - two.mean / one.mean), abs=0.1)
    incast = "incast:fan-in=8,message-size=64kB"
    text = _text(replace_replay_varied(request, pattern=incast), "buffer=9kB,9MB", words=True)
    for name in ("ecmp", "jsq"):
        assert re.search(rf"{name}: \S+ us in all cases; 1 of 2 cases did not complete", text)
