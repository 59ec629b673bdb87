"""The table of `--vary`."""

from __future__ import annotations

import io

from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import replay_varied
from rocescope.report.files.replay import encode
from rocescope.report.terminal.replay import print_replay

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"


def _text(request: ReplayRequest, vary: str) -> str:
    out = io.StringIO()
    print_replay(replay_varied(request, [vary])[0], out)
    return out.getvalue()


def test_rows_and_the_fastest_case() -> None:
    request = ReplayRequest(FABRIC, ("jsq",), jobs=("workers=4,size=64kB",))
    text = _text(request, "jobs.size=64kB,256kB")
    assert "Fastest: jobs.size=64kB with jsq" in text and "slowest: jobs.size=256kB" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("64kB ", "256kB "))]
    assert len(rows) == 4 and rows[0][:2] == ["64kB", "jsq"]  # completion, then times of jobs
    assert "lost" not in text and "pauses" not in text
    csv = encode(replay_varied(request, ["jobs.size=64kB,256kB"])[0], "csv").decode()
    assert csv.splitlines()[0].startswith("jobs.size,name,parameters,completion_ns")
    assert len(csv.splitlines()) == 3


def test_no_case_completes() -> None:
    request = ReplayRequest(FABRIC, ("jsq",), pattern="incast:fan-in=3,message-size=256kB")
    text = " ".join(_text(request, "buffer=20kB,30kB").split())
    assert "2 cases; packets are lost, and no case completes: --transport recovers them." in text


def test_whole_flows_have_no_completion() -> None:
    text = _text(ReplayRequest(FABRIC, ("ecmp",), pattern="permutation"), "spines=1,2")
    assert "busy for" in text and "completion" not in text and "2 cases." in text
