"""Records as an Arrow table, for Arrow IPC and Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .columns import RecordColumn

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def arrow_table(
    columns: Sequence[RecordColumn],
    records: Sequence[object],
    about: Mapping[str, str] | None = None,
) -> Any:
    """A pyarrow.Table, one row per record; `about` is its metadata.

    The metadata of each field holds its unit and meaning.
    """
    fields = [
        pa.field(c.name, _type_of(c), metadata={"unit": c.unit, "meaning": c.meaning})
        for c in columns
    ]
    arrays = [
        pa.array([column.value(record) for record in records], field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=about))


def _type_of(column: RecordColumn) -> Any:
    kind = _TYPES[column.kind]
    return pa.list_(kind) if column.many else kind


def encode_table(table: Any, format: str) -> bytes:
    """A `parquet` or `arrow` file (IPC, Feather version 2); ValueError for other formats."""
    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    elif format == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        raise ValueError(f"unknown format {format!r}")
    return sink.getvalue()
