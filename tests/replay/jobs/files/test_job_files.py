"""Files of jobs: read once, with a limit together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.jobs.files.job_files import JobFiles

GOAL = "num_ranks 2\nrank 0 {\nl1: send 8b to 1\n}\nrank 1 {\nl1: recv 8b from 0\n}\n"
JSON = {
    "ranks": 2,
    "priority": "bulk",
    "nodes": [{"id": "a", "rank": 0, "to": 1, "bytes": 100}],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, str]:
    goal, own = tmp_path / "a.goal", tmp_path / "b.json"
    goal.write_text(GOAL)
    own.write_text(json.dumps(JSON))
    for rank in range(2):  # metadata alone
        (tmp_path / f"c.{rank}.et").write_bytes(b"\x00")
    return goal, own, str(tmp_path / "c")


def test_each_form_is_read_once(files: tuple[Path, Path, str]) -> None:
    goal, own, traces = files
    reader = JobFiles()
    first = [reader.read(str(text), "ring") for text in files]
    assert [one.graph.ranks for one in first] == [2, 2, 2]
    assert [one.priority for one in first] == ["", "bulk", ""]
    for path in (goal, own, Path(f"{traces}.0.et")):
        path.unlink()
    assert all(reader.read(str(t), "ring") is one for t, one in zip(files, first, strict=True))
    with pytest.raises(UsageError, match=r"there is no file .*c\.0\.et"):
        reader.read(traces, "tree")  # other all-reduces make another graph
    with pytest.raises(UsageError, match=r"there is no file .*a\.goal"):
        JobFiles().read(str(goal), "ring")


def test_the_files_have_one_limit_together(files: tuple[Path, Path, str]) -> None:
    size = files[0].stat().st_size + files[1].stat().st_size + 2
    exact = JobFiles(size)
    for text in (*files, *files):
        exact.read(str(text), "ring")
    less = JobFiles(size - 1)
    less.read(str(files[0]), "ring")
    less.read(str(files[1]), "ring")
    with pytest.raises(UsageError, match=rf"up to .*c\.1\.et, are larger than {size - 1:,} bytes"):
        less.read(files[2], "ring")


def test_empty_files_are_named(files: tuple[Path, Path, str]) -> None:
    for text, name in ((files[0], "a.goal"), (files[1], "b.json"), (files[2], "c.1.et")):
        (files[0].parent / name).write_bytes(b"")
        with pytest.raises(UsageError, match=rf"--jobs: .*{name} is empty"):
            JobFiles().read(str(text), "ring")
