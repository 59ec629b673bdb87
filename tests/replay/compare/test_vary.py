"""`--vary`: what it changes, its cases and its mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captures import data

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.vary import parse_vary, replay_varied, varied
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.jobs import files as job_files
from rocescope.replay.jobs.collectives import Graph
from rocescope.replay.traffic import observed
from rocescope.replay.traffic.traffic import Traffic

FABRIC = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"
TAPS = tuple(
    str(path) for path in sorted((data("leafspine") / "r01_clean_write").glob("H*.pcap.xz"))
)
PATTERN = ReplayRequest(FABRIC, ("ecmp",), pattern="permutation:qps=2", model="ecn=80kB")
JOBS = ReplayRequest(FABRIC, ("jsq",), jobs=("workers=4,size=64kB",), lossless="pfc")


@pytest.mark.parametrize(
    ("request_", "text", "changed"),
    [
        (PATTERN, "spines=4", {"fabric": "leaf-spine:leaves=2,hosts=2,rate=100G,spines=4"}),
        (PATTERN, "down=leaf1-spine1", {"fabric": f"{FABRIC},down=leaf1-spine1"}),
        (PATTERN, "rate=400G", {"fabric": "leaf-spine:leaves=2,spines=2,hosts=2,rate=400G"}),
        (PATTERN, "transport.rate=95%", {"transport": "rate=95%"}),
        (PATTERN, "ecn=none", {"model": ""}),
        (PATTERN, "buffer=640kB", {"model": "ecn=80kB,buffer=640kB"}),
        (PATTERN, "qps=8", {"pattern": "permutation:qps=8"}),
        (PATTERN, "fail=spine1@1us", {"fail": ("spine1@1us",)}),
        (PATTERN, "fail=none", {"fail": ()}),
        (PATTERN, "lossless=pfc", {"lossless": "pfc"}),
        (PATTERN, "alpha=1/4", {"lossless": "pfc:alpha=1/4"}),
        (JOBS, "buffer=4MB", {"lossless": "pfc:buffer=4MB"}),
        (JOBS, "alpha=1/16", {"lossless": "pfc:alpha=1/16"}),
        (JOBS, "quanta=100", {"lossless": "pfc:quanta=100"}),
        (PATTERN, "forwarding=cut-through", {"model": "ecn=80kB,forwarding=cut-through"}),
        (JOBS, "size=1MB", {"jobs": ("workers=4,size=1MB",)}),
        (JOBS, "jobs.qps=2", {"jobs": ("workers=4,size=64kB,qps=2",)}),
    ],
)
def test_a_value_changes_its_option(
    request_: ReplayRequest, text: str, changed: dict[str, object]
) -> None:
    (value,) = (one := parse_vary(text, request_)).values
    found = varied(request_, one, value)
    assert {name: getattr(found, name) for name in changed} == changed
    assert PreparedReplay(found).fabric.hosts == 4


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["spine=4"], "there is no parameter 'spine'"),
        (["spines"], "write a parameter and its values"),
        (["spines="], "write a parameter and its values"),
        (["spines=2,2"], "a value is given twice"),
        (["spines=2", "spines=4"], "a parameter is given twice"),
        (["buffer=200kB", "model.buffer=800kB"], "a parameter is given twice"),
        (["spines=2,x"], "--vary spines=x: .*'x' is not a whole number"),
        (["hosts=" + ",".join(map(str, range(1, 66)))], "65 combinations; at most 64"),
        (["size=1MB"], "there is no parameter 'size'"),
        (["model.qps=2"], "there is no parameter 'model.qps'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replay_varied(PATTERN, texts)


def test_every_combination_is_that_of_its_own_replay() -> None:
    told: list[str] = []
    result, whole = replay_varied(
        JOBS, ["spines=1,2", "size=16kB,32kB"], lambda step, done, of: told.append(step)
    )
    assert whole and told and told[-1].startswith("4 of 4: ")
    settings = [one.settings for one in result.varied]
    assert settings == [{"spines": s, "size": z} for s in "12" for z in ("16kB", "32kB")]
    for one in result.varied:
        (row,) = one.strategies
        spec = f"leaf-spine:leaves=2,spines={one.settings['spines']},hosts=2,rate=100G"
        alone = ReplayRequest(
            spec, ("jsq",), jobs=(f"workers=4,size={one.settings['size']}",), lossless="pfc"
        )
        (wanted,) = PreparedReplay(alone).by_packets(("jsq",))[0].strategies
        assert wanted.packets is not None and row.completion_ns == wanted.packets.completion_ns
        assert row.jobs_ns == {"job1 ring": wanted.packets.jobs[0].completion_ns.mean}  # type: ignore[union-attr]
        assert row.pauses == 0 and row.lost_packets == 0


def test_whole_flows_are_placed() -> None:
    plain = ReplayRequest(FABRIC, ("assign",), pattern="permutation:qps=2")
    result, _ = replay_varied(plain, ["spines=2,4"])
    assert [one.strategies[0].completion_ns for one in result.varied] == [None, None]
    assert all(one.strategies[0].busy_ns > 0 for one in result.varied)


def test_captures_are_read_once_per_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = observed.traffic_from_capture, list[int]()

    def counted(captures: Any, fabric: Fabric, *rest: Any, **options: Any) -> Traffic:
        asked.append(fabric.hosts)
        return read(captures, fabric, *rest, **options)

    monkeypatch.setattr(observed, "traffic_from_capture", counted)
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2,delay=500ns"
    request = ReplayRequest(fabric, ("ecmp",), captures=TAPS, map="order")
    result, whole = replay_varied(request, ["rate=100G,400G", "ecn=80kB,none"])
    assert whole and len(result.varied) == 4
    assert asked == [4, 4]


def test_captured_messages_are_varied() -> None:
    fabric = "leaf-spine:leaves=2,spines=4,hosts=2,delay=500ns"
    request = ReplayRequest(fabric, ("ecmp",), captures=TAPS[:1], map="order", offer="asap")
    result, _ = replay_varied(request, ["qps=1,2", "mtu=none,256"])
    took = [one.strategies[0].completion_ns for one in result.varied]
    assert len(took) == 4 and None not in took
    assert took[1].mean > 1.1 * took[0].mean and took[3].mean > 1.1 * took[2].mean  # type: ignore[union-attr]


def test_a_mistake_of_a_later_case_names_it() -> None:
    request = ReplayRequest(FABRIC.replace("spines=2", "spines=4"), ("ecmp",), TAPS, map="order")
    with pytest.raises(UsageError, match="--vary hosts=1: the capture has 4 addresses"):
        replay_varied(request, ["hosts=2,1"])


def test_files_of_jobs_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"ranks": 2, "nodes": [{"id": "a", "rank": 0, "to": 1, "bytes": 9000}]}')
    read, asked = job_files.read_json, list[Path]()

    def counted(path: Path) -> tuple[Graph, str]:
        asked.append(path)
        return read(path)

    monkeypatch.setattr(job_files, "read_json", counted)
    result, whole = replay_varied(
        replace(JOBS, jobs=(f"file={path}",)), ["spines=1,2", "rate=100G,400G"]
    )
    assert whole and len(result.varied) == 4 and asked == [path]
