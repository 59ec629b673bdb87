"""Captures after stage map: the numbers and the order of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from captures import data
from clusters import SPRAYED, mapped, planned

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.cluster.captures import Captures
from rocescope.cluster.reduce import merged_rows
from rocescope.cluster.work import Work, read_plan


def captures_of(folder: str) -> Captures:
    work = Work(folder)
    return Captures(work, read_plan(work))


@pytest.mark.thorough
@pytest.mark.parametrize("partitions", [1, 5])
@pytest.mark.parametrize(
    "paths", [SPRAYED, [str(data("h01"))], [str(data("c10")), str(data("h01")), str(data("c15"))]]
)
def test_rows_addresses_and_taps_are_those_of_one_process(
    tmp_path: Path, paths: list[str], partitions: int
) -> None:
    with open_captures(paths, AnalyzeOptions()) as run:
        expected = list(run._tables())
        registry = run.registry
    captures = captures_of(mapped(tmp_path, paths, partitions))
    assert captures.registry.endpoints.texts() == registry.endpoints.texts()
    assert captures.registry.tap_names == registry.tap_names
    assert [t.frames for t in captures.registry.taps.items] == [
        t.frames for t in registry.taps.items
    ]
    found = list(merged_rows([captures.rows(n) for n in range(partitions)]))
    whole = PacketTable.concatenate([table for table, _ in expected])
    merged = PacketTable.concatenate([table for _, table, _ in found])
    for name, column in whole.columns():
        assert np.array_equal(column, getattr(merged, name)), name
    assert all(len(table) == len(keys) for _, table, keys in found)
    before = np.cumsum([0, *(len(table) for table, _ in expected)])
    messages = [(before[n], m) for n, (_, said) in enumerate(expected) for m in said]
    chunk_rows = np.zeros(captures.chunks.count, np.int64)
    for chunk, table, _ in found:
        chunk_rows[chunk] += len(table)
    before = np.cumsum([0, *chunk_rows])
    assert [(before[chunk], message) for chunk, message in captures.cm] == messages


def test_a_pair_of_hosts_is_in_one_partition(tmp_path: Path) -> None:
    captures = captures_of(mapped(tmp_path, SPRAYED, 5))
    pairs = []
    for number in range(5):
        tables = [table for _, table, _ in captures.rows(number)]
        table = PacketTable.concatenate([PacketTable.zeros(0), *tables])
        low, high = np.minimum(table.src, table.dst), np.maximum(table.src, table.dst)
        pairs.append(set(zip(low.tolist(), high.tolist(), strict=True)))
    assert len(set.union(*pairs)) == sum(map(len, pairs)) == 3
    assert [len(of_part) for of_part in pairs].count(1) == 3


def test_a_capture_that_is_not_split_yet_is_named(tmp_path: Path) -> None:
    folder = planned(tmp_path, SPRAYED[:2], 2)
    with pytest.raises(UsageError, match=r"2 of 2 captures are missing: run map 0 \(.*H1-leaf1"):
        captures_of(folder)
