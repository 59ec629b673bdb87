"""The table of `--vary`."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from captures import data

from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.report.files.replay import encode
from rocescope.report.terminal.page import page_on
from rocescope.report.terminal.replay import fill_replay

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"


def _text(request: ReplayRequest, vary: str, words: bool = False) -> str:
    out = io.StringIO()
    fill_replay(page_on(out), replay_varied(request, [vary])[0])
    return " ".join(out.getvalue().split()) if words else out.getvalue()


def test_rows_and_the_fastest_case() -> None:
    request = ReplayRequest(FABRIC, ("jsq",), jobs=("workers=4,size=64kB",))
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
    request = ReplayRequest(FABRIC, ("jsq",), pattern="incast:fan-in=3,message-size=256kB")
    text = _text(request, "buffer=20kB,30kB", words=True)
    assert "2 cases; packets are lost, and no case completes: --transport recovers them." in text


def test_whole_flows_have_no_completion() -> None:
    plain = ReplayRequest(FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "rate=100G,200G", words=True)
    assert "busy for" in text and "completion" not in text
    assert "Best is rate=200G, the busiest link is busy for" in text
    assert "us: 50.0 % less than the worst, rate=100G, " in text


def test_one_case_is_told_to_take_several_and_equal_cases_that_they_are() -> None:
    plain = ReplayRequest(FABRIC, ("ecmp",), pattern="permutation")
    text = _text(plain, "spines=2", words=True)
    assert (
        "One case: spines=2, " in text and "several values to compare: --vary spines=A,B." in text
    )
    text = _text(plain, "delay=1us,2us", words=True)
    assert "All 2 cases alike: the busiest link is busy for" in text
    several = replace(plain, strategies=("ecmp", "wcmp"))
    assert "All 2 cases alike: " in _text(several, "delay=1us,2us", words=True)
    text = _text(plain, "spines=2,4", words=True)
    assert "us; the fullest link has 2.00 (spines=2) to 4.00 (spines=4) times its fair" in text


def test_captured_times_are_said_to_set_the_completion() -> None:
    taps = sorted((data("leafspine") / "r01_clean_write").glob("H1*.pcap.xz"))
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2,delay=500ns"
    request = ReplayRequest(fabric, ("ecmp",), tuple(map(str, taps)), map="order")
    text = _text(replace(request, packets=True), "rate=100G,200G", words=True)
    assert "All 2 cases alike: 1." in text
    assert "offered at their captured times" in text
    text = _text(replace(request, model="offer=asap"), "rate=100G,200G", words=True)
    assert "captured times" not in text and "Best is rate=200G, " in text


def test_the_best_strategy_is_named() -> None:
    wide = FABRIC.replace("hosts=2", "hosts=8")
    request = ReplayRequest(wide, ("ecmp", "jsq"), pattern="permutation:message-size=64kB")
    text = _text(request, "spines=1,2", words=True)
    assert re.search(r"Best is spines=2 with jsq, [0-9.]+ us\. ", text)


def test_each_strategy_is_compared_with_itself() -> None:
    """What ecmp loses against jsq is not what the values change."""
    wide = FABRIC.replace("hosts=2", "hosts=8")
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
    text = _text(replace(request, pattern=incast), "buffer=9kB,9MB", words=True)
    for name in ("ecmp", "jsq"):
        assert re.search(rf"{name}: \S+ us in all cases; 1 of 2 cases did not complete", text)
