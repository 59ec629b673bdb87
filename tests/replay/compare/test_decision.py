"""The first lines of a replay: what another strategy saves, by hand and from real replays."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from rocescope import cli
from rocescope.replay.compare.decision import decided, seed_decided
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.results import (
    Chance,
    Decision,
    Distribution,
    Production,
    ReplayResult,
    SeedValue,
    Spread,
)

FABRIC = "leaf-spine:leaves=2,spines=4,hosts=4,rate=100G"
PATTERN = "permutation:message-size=64KiB"
NAMES = ("ecmp", "assign", "host-spray", "adaptive")


@pytest.fixture(scope="module")
def replayed() -> ReplayResult:
    request = ReplayRequest(FABRIC, NAMES, pattern=PATTERN, packets=True)
    result, complete = PreparedReplay(request).by_packets(NAMES)
    assert complete
    return result


def decision(result: ReplayResult, times: dict[str, tuple[float, float, float]]) -> Decision:
    """The decision on strategies with these times (least, mean, most) of 4 runs; none: lost."""
    rows = []
    for row in result.strategies:
        assert row.packets is not None
        known = times.get(row.name)
        spread = None if known is None else Spread(min=known[0], mean=known[1], max=known[2])
        done = 0 if known is None else 4
        packets = msgspec.structs.replace(
            row.packets, runs=4, completed_runs=done, completion_ns=spread
        )
        rows.append(msgspec.structs.replace(row, packets=packets, lower_bound_ns=500.0))
    found = decided(msgspec.structs.replace(result, strategies=rows))
    assert found is not None and len(found.lines) <= 5
    return found


def test_the_best_saves_and_the_cheapest_brings_most_of_it(replayed: ReplayResult) -> None:
    times = {
        "ecmp": (900.0, 1000.0, 1100.0),
        "assign": (640.0, 650.0, 660.0),
        "host-spray": (690.0, 700.0, 710.0),
        "adaptive": (590.0, 600.0, 610.0),
    }
    found = decision(replayed, times)
    assert (found.baseline, found.baseline_ns, found.best) == ("ecmp", 1000, "adaptive")
    assert (found.saved_ns, found.saved_percent) == (400, 40)
    assert found.cheapest == "host-spray"  # 300 of 400: hosts before routes before switches
    assert "saves 400 ns (40.0 %)" in found.lines[1]
    assert "host-spray (a change of hosts alone) saves 300 ns, 75.0 % of it" in found.lines[2]
    assert "before 500 ns" in found.lines[3] and "20.0 % above" in found.lines[3]
    slow = decision(replayed, times | {"host-spray": (800.0, 810.0, 820.0)})
    assert slow.cheapest == "assign"  # 190 of 400 are not most of it
    alone = decision(replayed, {"ecmp": times["ecmp"], "adaptive": times["adaptive"]})
    assert alone.cheapest == "adaptive" and "adaptive itself" in alone.lines[2]
    assert alone.lines[-1] == ("Not complete in every run, and not compared: assign, host-spray.")


def test_what_lies_within_the_spread_is_no_difference(replayed: ReplayResult) -> None:
    times = dict.fromkeys(NAMES, (900.0, 1000.0, 1100.0))
    found = decision(replayed, times | {"adaptive": (850.0, 905.0, 910.0)})
    assert found.best is found.saved_ns is found.saved_percent is found.cheapest is None
    assert "no difference" in found.lines[1] and "saves" not in " ".join(found.lines)
    beyond = decision(replayed, times | {"adaptive": (850.0, 870.0, 890.0)})
    assert beyond.best == "adaptive" and beyond.saved_ns == 130


def test_nothing_complete_is_no_decision(replayed: ReplayResult) -> None:
    rows = []
    for row in replayed.strategies:
        assert row.packets is not None
        packets = msgspec.structs.replace(row.packets, completed_runs=0, completion_ns=None)
        rows.append(msgspec.structs.replace(row, packets=packets))
    assert decided(msgspec.structs.replace(replayed, strategies=rows)) is None


def test_brief_prints_the_decision_of_whole_flows(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", "--pattern", PATTERN, "--fabric", FABRIC, "-s", "ecmp", "-s", "assign"]
    assert cli.run([*words, "-f", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    ecmp, assign = (row["lower_bound_ns"] for row in result["strategies"])
    found = result["decision"]
    assert list(result)[2] == "decision" and found["unit"] == "busiest link"
    assert (found["best"], found["saved_ns"]) == ("assign", ecmp - assign)
    assert cli.run([*words, "--brief"]) == 0
    brief = capsys.readouterr().out
    assert brief.split() == ["DECISION", *" ".join(found["lines"]).split()]
    assert cli.run(words) == 0
    assert capsys.readouterr().out.startswith(brief)
    assert cli.run([*words, "--brief", "-f", "json"]) == 2
    assert "--brief is for the report" in capsys.readouterr().err


def test_a_replay_far_from_the_capture_says_so(replayed: ReplayResult) -> None:
    rows = []
    for row in replayed.strategies:
        assert row.packets is not None and row.packets.completion_ns is not None
        packets = msgspec.structs.replace(
            row.packets, model=row.packets.model | {"offer": "closed"}
        )
        rows.append(msgspec.structs.replace(row, packets=packets))
    took = rows[0].completion_time_ns
    assert took is not None
    for captured_ns, far in ((took, False), (2 * took, True), (int(took * 1.05), False)):
        traffic = msgspec.structs.replace(replayed.traffic, captured_ns=captured_ns)
        found = decided(msgspec.structs.replace(replayed, traffic=traffic, strategies=rows))
        assert found is not None and "closed loop" in found.lines[0]
        assert ("50.0 % less than the capture" in found.lines[0]) == far
        assert ("compare strategies with each other" in found.lines[0]) == far


@pytest.mark.parametrize(
    ("values", "in_use", "words"),
    [
        ((20.0, 40.0, 60.0), None, "20.0 % in place of 40.0 % with the median seed (50.0 % less)"),
        ((20.0, 40.0, 60.0), 50.0, "20.0 % in place of 50.0 % with the seed in use (60.0 % less)"),
        ((20.0, 40.0, 60.0), 20.0, "imbalance 20.0 %, no better than the seed in use"),
        ((30.0, 30.0, 30.0), 30.0, "No difference: every seed has an imbalance of 30.0 %"),
    ],
)
def test_the_decision_of_a_sweep(
    values: tuple[float, float, float], in_use: float | None, words: str
) -> None:
    low, median, high = values
    over = Distribution(
        min=low,
        mean=median,
        max=high,
        quantiles={"p50": median},
        resolution=0.1,
        histogram=[],
        distinct=3,
    )
    production = None
    if in_use is not None:
        production = Production(
            seed=7, value=in_use, better_seeds=12, equal_seeds=1, percentile=34.5
        )
    chance = Chance(mean=41.0, p05=30.0, p95=50.0, draws=100)
    text = seed_decided(SeedValue(seed=3, value=low), over, production, chance, "fim-bytes")
    assert words in text and text.endswith("ideal random hashing gives 41.0 %.")
    told = "12 seeds are better than the seed in use, 34.5 % are worse" in text
    assert told == (in_use is not None and low < high)


def test_a_captured_job_in_a_closed_loop_saves_what_the_job_saves(tmp_path: Path) -> None:
    """A ring with 100 us of computing per iteration, whose queue pairs collide under ECMP."""
    names = ("ecmp", "host-spray", "adaptive")
    jobs = "collective=ring,workers=8,size=1MB,compute=100us,iterations=4,place=spread"
    pcap, words = tmp_path / "job.pcap", ["--fabric", FABRIC]
    assert cli.run(["replay", "--jobs", jobs, *words, "-s", "ecmp", "--sent", str(pcap)]) == 0
    job = ReplayRequest(FABRIC, names, jobs=(jobs,))
    truth, _ = PreparedReplay(job).by_packets(names)
    times = {row.name: row.completion_time_ns or 0 for row in truth.strategies}
    assert times["adaptive"] < 0.7 * times["ecmp"]
    prepared = PreparedReplay(ReplayRequest(FABRIC, names, (str(pcap),), offer="closed"))
    closed, _ = prepared.by_packets(names)
    found = prepared.beside_captured(closed)
    took, decision = found.traffic.captured_ns, found.decision
    assert took is not None and decision is not None and decision.saved_ns is not None
    assert decision.baseline == "ecmp" and decision.best in ("host-spray", "adaptive")
    assert decision.baseline_ns == pytest.approx(took, rel=0.05)
    assert decision.saved_ns == pytest.approx(times["ecmp"] - times["adaptive"], rel=0.05)
    assert decision.cheapest == "host-spray"
