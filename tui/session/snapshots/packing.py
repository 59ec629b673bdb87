"""Stored snapshots: their counts in the smallest types that hold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from ....kernels.kernel import Array
from .snapshot import Snapshot

_NARROW = (np.int8, np.int16, np.int32)
_ALWAYS_NARROW = "peer"
"""The only column of another signed type than int64."""
_Columns = TypeVar("_Columns")


def packed(snapshot: Snapshot) -> Snapshot:
    """int64 columns of flows, paths and MRC in smaller types; only `unpacked` may read them."""
    return _changed(snapshot, _smallest)


def unpacked(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it was before `packed`."""
    return _changed(snapshot, _widest)


def _changed(snapshot: Snapshot, change: Callable[[Array], Array]) -> Snapshot:
    return replace(
        snapshot,
        flows=_columns(snapshot.flows, change),
        paths={by: _columns(paths, change) for by, paths in snapshot.paths.items()},
        mrc=None if snapshot.mrc is None else _columns(snapshot.mrc, change),
    )


def _columns(columns: _Columns, change: Callable[[Array], Array]) -> _Columns:
    of: Any = columns
    arrays = {
        f.name: change(value)
        for f in fields(of)
        if f.name != _ALWAYS_NARROW and isinstance(value := getattr(of, f.name), np.ndarray)
    }
    changed: _Columns = replace(of, **arrays)
    return changed


def _smallest(values: Array) -> Array:
    if values.dtype != np.int64:
        return values
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for narrow in _NARROW:
        limits = np.iinfo(narrow)
        if limits.min <= low and high <= limits.max:
            return values.astype(narrow)
    return values


def _widest(values: Array) -> Array:
    return values.astype(np.int64) if values.dtype in _NARROW else values
