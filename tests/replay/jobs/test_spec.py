"""`--jobs`: keys and their mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.jobs.spec import parse_jobs

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("collective=star", "there is no collective 'star'"),
        ("wrkers=4", "has no key 'wrkers' at column 1; did you mean workers"),
        ("workers=1", "workers '1' is not a whole number from 2 to"),
        ("size=0", "size must be more than 0"),
        ("model=gpt9", "there is no model 'gpt9'"),
        ("model=vgg16,size=1MB", "size cannot be combined with model=vgg16"),
        ("compute=2h", "compute"),
        ("compute=1ms,ratio=2", "give compute or ratio"),
        ("slowdown=0.5", "slowdown '0.5' is not a number from 1 to 100"),
        ("jitter=5", "jitter '5' is not a share of 0% to 1000%"),
        ("place=near", "place is packed, spread, random"),
        ("group=4", "group is for collective=hierarchical"),
        ("skew=1", "skew is for collective=moe"),
        ("expert=1us", "expert is for collective=moe"),
        ("count=999", "count '999' is not a whole number from 1 to 256"),
        ("qps=0", "qps '0' is not a whole number from 1 to 64"),
    ],
)
def test_mistakes_name_the_key(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_jobs([spec])
    assert words in str(error.value) and "\n" not in str(error.value)


def test_jobs_that_do_not_fit_are_named() -> None:
    for spec, words in (
        ("workers=9", "job1 ring has 9 workers"),
        ("workers=4,count=3", "job3 ring has 4 workers"),
        ("workers=4,stragglers=5", "4 workers have no 5 stragglers"),
        ("collective=hierarchical,workers=6,group=4", "group=4 does not divide 6 workers"),
    ):
        with pytest.raises(UsageError, match=words):
            parse_jobs([spec])(FABRIC, 1)
    with pytest.raises(UsageError, match="at most 256 jobs"):
        parse_jobs(["count=200", "count=200"])


def test_models_stragglers_and_starts() -> None:
    bert, ring = parse_jobs(
        ["model=bert-base,scale=0.001,workers=2,ratio=2", "count=1,workers=4,size=1kB,start=5us"]
    )(FABRIC, 1)
    sizes = bert.graph.nodes().size[bert.graph.nodes().to >= 0]
    assert 2 * sizes.sum() == pytest.approx(2 * 2 * 109_482_240 * 4 * 0.001, rel=0.001)
    work = bert.graph.nodes().size[bert.graph.nodes().to < 0]
    line = 109_482_240 * 4 * 0.001 * 80
    assert work.sum() == pytest.approx(2 * line / 2, rel=0.001)
    assert ring.start_ps == 5_000_000 and ring.hosts.tolist() == [2, 3, 4, 5]
    slow = parse_jobs(["workers=4,compute=9us,stragglers=1,slowdown=3"])(FABRIC, 1)[0].graph.nodes()
    assert slow.size[slow.to < 0].tolist() == [9_000_000] * 3 + [27_000_000]
    two = parse_jobs(["workers=2,count=2,start=1us,stagger=7us"])(FABRIC, 1)
    assert [job.start_ps for job in two] == [1_000_000, 8_000_000]
    assert [job.name for job in two] == ["job1 ring", "job2 ring"]


def test_the_class_of_a_job(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    node = {"id": "a", "rank": 0, "to": 1, "bytes": 100}
    file.write_text(json.dumps({"ranks": 2, "nodes": [node], "priority": "bulk"}))
    specs = ["workers=2", "workers=2,priority=bulk", f"file={file}", f"file={file},priority=data"]
    jobs = parse_jobs(specs, classes=("data", "bulk"))(FABRIC, 1)
    assert [job.priority for job in jobs] == [0, 1, 1, 0]
    with pytest.raises(UsageError, match="--jobs: priority: there is no class 'x'; .*: data, bulk"):
        parse_jobs(["workers=2,priority=x"], classes=("data", "bulk"))
    with pytest.raises(UsageError, match=r"--jobs: x\.json: priority: there is no class 'bulk'"):
        parse_jobs([f"file={file}"])
