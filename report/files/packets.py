"""The packet table as Arrow record batches, and Parquet and Arrow files of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...analyzer.decode.headers.extensions import ExtensionTable
from ...analyzer.decode.multipath.mrc import MRC_COLUMNS
from ...analyzer.wire.packets import COLUMNS, PacketTable
from ...analyzer.wire.registry import Registry
from ...version import VERSION

_TEXT_COLUMNS = {
    "src": "source address",
    "dst": "destination address",
    "tap": "name of the vantage point",
}
"""Columns that are an index in the table and the text of that index in a file."""
_EXTENSION_COLUMNS = tuple(
    ("extensions_present" if field.name == "present" else field.name, field)
    for field in dataclasses.fields(ExtensionTable)
)


class BatchWriter(Protocol):
    """A Parquet or Arrow IPC writer of pyarrow."""

    def write_batch(self, batch: Any) -> None:
        """Write one record batch: one row group."""


def packet_schema(extensions: bool = False) -> Any:
    """The pyarrow.Schema of exported packets; the metadata of each field has unit and meaning."""
    fields = []
    for c in COLUMNS:
        text = _TEXT_COLUMNS.get(c.name)
        kind = pa.string() if text else pa.from_numpy_dtype(c.dtype)
        fields.append(_field(c.name, kind, c.unit, text or c.meaning))
    if extensions:
        for name, field in _EXTENSION_COLUMNS:
            about = field.metadata
            kind = pa.from_numpy_dtype(about["dtype"])
            fields.append(_field(name, kind, about["unit"], about["meaning"]))
        for column in MRC_COLUMNS:
            kind = pa.from_numpy_dtype(np.dtype(column.dtype))
            meaning = f"MRC: {column.meaning}" + (f" [{column.source}]" if column.source else "")
            fields.append(_field(f"mrc_{column.name}", kind, column.unit, meaning))
    return pa.schema(fields, metadata={"rocescope.version": VERSION})


def _field(name: str, kind: Any, unit: str, meaning: str) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "meaning": meaning})


def record_batch(table: PacketTable, extensions: ExtensionTable | None, registry: Registry) -> Any:
    """The rows of a table as a pyarrow.RecordBatch of `packet_schema`."""
    addresses = pa.array(registry.endpoints.texts(), pa.string())
    tap_names = pa.array(registry.tap_names, pa.string())
    texts = {"src": addresses, "dst": addresses, "tap": tap_names}
    arrays = []
    for name, values in table.columns():
        if name in texts:
            arrays.append(texts[name].take(pa.array(values)))
        else:
            arrays.append(pa.array(np.ascontiguousarray(values)))
    if extensions is not None:
        arrays += [pa.array(getattr(extensions, field.name)) for _, field in _EXTENSION_COLUMNS]
        arrays += _mrc_arrays(table)
    return pa.RecordBatch.from_arrays(arrays, schema=packet_schema(extensions is not None))


def _mrc_arrays(table: PacketTable) -> list[Any]:
    """The fields of the MRC packets, 0 in all other rows."""
    arrays = []
    for column in MRC_COLUMNS:
        values = np.zeros(len(table), column.dtype)
        if table.mrc is not None:
            values[table.mrc["row"]] = table.mrc[column.name]
        arrays.append(pa.array(values))
    return arrays


@contextmanager
def batch_writer(file: BinaryIO, format: str, extensions: bool) -> Iterator[BatchWriter]:
    """A writer of record batches to `file`, as `parquet` or `arrow` (IPC file, Feather 2)."""
    schema = packet_schema(extensions)
    if format == "parquet":
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(file, schema, options=options) as writer:
            yield writer
