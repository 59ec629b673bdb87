"""Records: the rows of the tables of a run, with fields by name.

A class declares the fields of a record with their meaning; a table is a structured array with one
record per link, packet, flow and so on. Kernels read `links[link].free`, Python `links["free"]`.
What exists once in a run (counts, settings) is a table of one record.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

Records: TypeAlias = Any
"""A structured array whose elements are records in kernels."""

CACHE_LINE = 64


def layout(record: type, multiple_of: int = 8) -> np.dtype[Any]:
    """The dtype of a record: its fields in order, eight bytes each; a field may be a record itself.

    multiple_of: the size is a multiple of this, so that records do not straddle cache lines.
    """
    names, formats, offsets, size = [], [], [], 0
    fields: dict[str, str] = {}
    for part in reversed(record.__mro__):
        fields |= vars(part).get("__annotations__", {})
    for name, kind in fields.items():
        nested: Any = getattr(sys.modules[record.__module__], kind, None)
        form = np.dtype({"int": np.int64, "float": np.float64}.get(kind) or layout(nested))
        names.append(name)
        formats.append(form)
        offsets.append(size)
        size += form.itemsize
    itemsize = -(-size // multiple_of) * multiple_of
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}, align=True
    )


def table(count: int, record: np.dtype[Any]) -> Records:
    """Records of zeros; the memory is aligned to cache lines."""
    size = count * record.itemsize
    room = np.zeros(size + CACHE_LINE, np.uint8)
    skip = -room.ctypes.data % CACHE_LINE
    records: Records = room[skip : skip + size].view(record)
    return records


def array_of(record: np.dtype[Any]) -> Any:
    """The type of a table for the signatures of kernels."""
    from numba import types
    from numba.np.numpy_support import from_dtype

    return types.Array(from_dtype(record), 1, "C")  # type: ignore[no-untyped-call, unused-ignore]
