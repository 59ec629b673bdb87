"""Columns in Parquet files."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.cluster.rows import ColumnWriter, read_columns
from rocescope.cluster.work import Work

DTYPES = {"a": np.dtype(np.uint32), "b": np.dtype(np.int64)}


def written(path: Path, pieces: list[int]) -> None:
    writer, start = ColumnWriter(str(path), DTYPES), 0
    for size in pieces:
        values = np.arange(start, start + size)
        writer.write({"a": values.astype(np.uint32), "b": -values})
        start += size
    writer.close()


def test_pieces_of_any_size_come_back_in_order(tmp_path: Path) -> None:
    written(tmp_path / "x", [3, 0, 200_000, 1])
    pieces = list(read_columns(str(tmp_path / "x"), 70_000))
    a, b = (np.concatenate([piece[name] for piece in pieces]) for name in "ab")
    assert len(pieces) > 1
    assert (a.dtype, b.dtype) == (np.uint32, np.int64)
    assert np.array_equal(a, np.arange(200_004))
    assert np.array_equal(b, -np.arange(200_004))


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    said = r"cannot write .*/map/0: no space left on device$"
    with pytest.raises(RocescopeError, match=said), Work(str(tmp_path)).task("map", "0"):
        written(Path("/dev/full"), [50_000])
    gc.collect()
    assert not lost


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damage_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x"
    written(path, [50_000])
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-100], "flipped": data, "empty": b""}[damage])
    with pytest.raises(UnreadableInput, match="is damaged"):
        list(read_columns(str(path)))
