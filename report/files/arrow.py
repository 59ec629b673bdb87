"""Records as an Arrow table, for Arrow IPC and Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from .columns import RecordColumn

_ROWS = 4096
"""Records that are in memory at once."""
_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def arrow_table(
    columns: Sequence[RecordColumn],
    records: Sequence[object],
    about: Mapping[str, str] | None = None,
) -> Any:
    """A pyarrow.Table, one row per record; `about` is its metadata.

    The metadata of each field holds its unit and meaning.
    """
    schema = _schema(columns, about)
    arrays = [
        pa.array([column.value(record) for record in records], field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _schema(columns: Sequence[RecordColumn], about: Mapping[str, str] | None) -> Any:
    fields = [
        pa.field(c.name, _type_of(c), metadata={"unit": c.unit, "meaning": c.meaning})
        for c in columns
    ]
    return pa.schema(fields, metadata=about)


class ParquetRecords:
    """A Parquet file of records that are never all in memory."""

    def __init__(
        self, file: BinaryIO, columns: Sequence[RecordColumn], about: Mapping[str, str]
    ) -> None:
        self._columns, self._about = columns, about
        self._writer = pq.ParquetWriter(file, _schema(columns, about), compression="zstd")

    def write(self, records: Iterable[object]) -> None:
        """Append rows; OSError if the disk is full."""
        left = iter(records)
        while some := list(islice(left, _ROWS)):
            self._writer.write_table(arrow_table(self._columns, some, self._about))

    def close(self) -> None:
        """Write the end of the file, which stays open; a second time does nothing."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False  # its deletion would try again


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
