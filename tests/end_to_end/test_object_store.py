"""Ring files in a real S3 server: analysed as those in folders, by one process and in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from clusters import SPRAYED, in_tasks, planned
from stores import KEY_ID, SECRET, Store, store

from rocescope.analyzer.errors import StoreError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.cluster.merge import merge
from rocescope.cluster.reduce import reduce_partition
from rocescope.cluster.split import map_capture
from rocescope.cluster.work import Work, check_unchanged, read_plan
from rocescope.commands.options.reading import ReadingInTasks

RINGS = "ring/(?P<tap>[^/]+)/"
READING = ReadingInTasks(tap=[RINGS])


@pytest.fixture
def running() -> Iterator[Store]:
    with store() as one:
        yield one


def _filled(running: Store, folder: Path) -> None:
    """Four captures as rings of two taps, in the store and in a folder."""
    for number, path in enumerate(SPRAYED[:4]):
        key = f"ring/tap{number % 2}/{number}.pcap.xz"
        running.put(key, Path(path))
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(Path(path).read_bytes())


def _options(given: str) -> tuple[list[str], AnalyzeOptions]:
    paths, names = READING.captures([Path(given)])
    return paths, READING.options(paths, names)


def test_of_a_prefix_as_of_a_folder(running: Store, tmp_path: Path) -> None:
    _filled(running, tmp_path)
    expected = msgspec.json.encode(analyze(*_options(str(tmp_path))))
    paths, options = _options("s3://captures/ring")
    assert paths[0] == "s3://captures/ring/tap0/0.pcap.xz"
    assert msgspec.json.encode(analyze(paths, options)) == expected
    work = tmp_path / "work"
    assert msgspec.json.encode(in_tasks(work, paths, 3, options)) == expected
    for path in work.rglob("*"):
        if path.is_file():
            assert KEY_ID.encode() not in path.read_bytes(), path
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.thorough
def test_a_refused_task_runs_again_and_leaves_no_gap(running: Store, tmp_path: Path) -> None:
    _filled(running, tmp_path)
    expected = msgspec.json.encode(analyze(*_options(str(tmp_path))))
    work = str(tmp_path / "work")
    planned(Path(work), *_planned_with())
    map_capture(work, 0)
    running.refuse()
    with pytest.raises(StoreError, match="refuses access"):
        map_capture(work, 1)
    running.allow()
    map_capture(work, 1)
    for number in range(2):
        reduce_partition(work, number)
    assert msgspec.json.encode(merge(work)) == expected


def _planned_with() -> tuple[list[str], int, AnalyzeOptions]:
    paths, options = _options("s3://captures/ring")
    return paths, 2, options


def test_an_object_of_a_ring_that_is_gone_or_changed_after_the_plan(
    running: Store, tmp_path: Path
) -> None:
    _filled(running, tmp_path)
    work = str(tmp_path / "work")
    planned(Path(work), *_planned_with())
    running.delete("ring/tap0/2.pcap.xz")
    with pytest.raises(UnreadableInput, match=r"tap0/2\.pcap\.xz: no such bucket, object"):
        map_capture(work, 0)
    map_capture(work, 1)
    assert Work(work).done(read_plan(Work(work)).digest, "map", 1)
    same_size = bytearray(Path(SPRAYED[2]).read_bytes())
    same_size[-1] ^= 1
    running.put("ring/tap0/2.pcap.xz", bytes(same_size))
    with pytest.raises(UsageError, match=r"2\.pcap\.xz changed after the plan was made"):
        map_capture(work, 0)
    running.put("ring/tap0/2.pcap.xz", Path(SPRAYED[2]))  # the same content is no change
    plan = read_plan(Work(work))
    check_unchanged(plan, plan.sources[0])


def test_an_object_of_a_ring_that_is_no_capture_is_a_gap(running: Store, tmp_path: Path) -> None:
    _filled(running, tmp_path)
    running.put("ring/tap0/1.pcap", b"x" * 100)
    paths, options = _options("s3://captures/ring")
    (first, _) = analyze(paths, replace(options, max_flows=1000)).captures
    assert any("1.pcap" in warning for warning in first.warnings)
