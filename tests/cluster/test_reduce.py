"""Stage reduce."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from captures import data
from clusters import SPRAYED, mapped, planned

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.cluster import work as plan_module
from rocescope.cluster.reduce import read_result, reduce_partition
from rocescope.cluster.work import ColumnWriter, Work, read_columns


@pytest.fixture(scope="module")
def sprayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(mapped(tmp_path_factory.mktemp("sprayed"), SPRAYED, 5))


@pytest.fixture
def folder(tmp_path: Path, sprayed: Path) -> str:
    shutil.copytree(sprayed, tmp_path / "w")
    return str(tmp_path / "w")


@pytest.mark.thorough
def test_a_partition_leaves_its_state_and_the_place_of_every_flow(folder: str) -> None:
    for number in range(5):
        reduce_partition(folder, number)
    plan = plan_module.read_plan(Work(folder))
    outlines = [read_result(Work(folder), plan, number, "outline") for number in range(5)]
    assert sum(len(outline.flows) for outline in outlines) == 72
    assert all(len(o.flows) == len(o.flow_keys) for o in outlines)
    for number, outline in enumerate(outlines):
        measuring = read_result(Work(folder), plan, number, "state")
        assert len(measuring.tracker) == len(outline.flows)
        tracked = read_columns(os.path.join(folder, "reduce", str(number), "tracked.parquet"))
        flow = np.concatenate([np.zeros(0, np.int32), *(piece["flow"] for piece in tracked)])
        assert len(flow) == outline.packets
        assert set(flow.tolist()) == set(range(len(outline.flows)))


def test_a_done_task_is_not_repeated_and_numbers_are_checked(folder: str) -> None:
    reduce_partition(folder, 3)
    before = os.stat(os.path.join(folder, "reduce", "3")).st_ino
    reduce_partition(folder, 3)
    assert os.stat(os.path.join(folder, "reduce", "3")).st_ino == before
    with pytest.raises(UsageError, match="partitions 0 to 4"):
        reduce_partition(folder, 5)


def test_before_the_end_of_stage_map_nothing_is_measured(tmp_path: Path) -> None:
    folder = planned(tmp_path, [str(data("c10"))], 1)
    with pytest.raises(UsageError, match="stage map is not complete"):
        reduce_partition(folder, 0)


def test_damaged_rows_are_named(folder: str) -> None:
    part = next((Path(folder) / "map").glob("*/0.parquet"))
    part.write_bytes(part.read_bytes()[:-50])
    with pytest.raises(UnreadableInput, match=f"{part.name} is damaged.*remove its folder"):
        reduce_partition(folder, 0)
    assert os.listdir(os.path.join(folder, "reduce")) == []


def test_missing_rows_are_no_empty_partition(tmp_path: Path) -> None:
    folder = mapped(tmp_path, [str(data("c10"))], 1)
    part = tmp_path / "map" / "0" / "0.parquet"
    rows = list(read_columns(str(part)))
    part.unlink()
    with pytest.raises(
        UnreadableInput, match=r"0\.parquet is damaged \(no such file\): remove its folder"
    ):
        reduce_partition(folder, 0)
    fewer = ColumnWriter(str(part), {name: array.dtype for name, array in rows[0].items()})
    fewer.write({name: array[:-1] for name, array in rows[0].items()})
    fewer.close()
    with pytest.raises(UnreadableInput, match=r"0\.parquet is damaged \(unexpected number of rows"):
        reduce_partition(folder, 0)


def test_too_many_flows_end_the_task(tmp_path: Path) -> None:
    from dataclasses import replace

    options = replace(plan_module.AnalyzeOptions(), max_flows=3)
    folder = planned(tmp_path, [str(data("c10"))], 1, options)
    from rocescope.cluster.split import map_capture

    map_capture(folder, 0)
    with pytest.raises(RocescopeError, match="more than 3 flows"):
        reduce_partition(folder, 0)
