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
from ...analyzer.filtering.ranks import Ranks
from ...analyzer.wire.packets import COLUMNS, PacketTable
from ...analyzer.wire.registry import Registry
from ...kernels.kernel import Ints
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


_RANK_COLUMNS = {
    "src_rank": (pa.int32(), "sender", "rank that sends the packet, from logs; null: not known"),
    "dst_rank": (pa.int32(), "receiver", "rank that receives it, from logs; null: not known"),
    "comm": (pa.string(), "comm", "communicator, from logs; null: not known"),
}
"""Type, column of `Ranks` and meaning."""


def packet_schema(extensions: bool = False, ranks: bool = False) -> Any:
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
    if ranks:
        for name, (kind, _, meaning) in _RANK_COLUMNS.items():
            fields.append(_field(name, kind, "", meaning).with_nullable(True))
    return pa.schema(fields, metadata={"rocescope.version": VERSION})


def _field(name: str, kind: Any, unit: str, meaning: str) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"unit": unit, "meaning": meaning})


def record_batch(
    table: PacketTable,
    extensions: ExtensionTable | None,
    registry: Registry,
    ranks: Ranks | None = None,
) -> Any:
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
    if ranks is not None:
        arrays += _rank_arrays(ranks, ranks.columns(table, registry))
    schema = packet_schema(extensions is not None, ranks is not None)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rank_arrays(ranks: Ranks, columns: dict[str, Ints]) -> Iterator[Any]:
    names = pa.array(ranks.comms, pa.string())
    for kind, column, _ in _RANK_COLUMNS.values():
        values = columns[column]
        numbers = pa.array(values, pa.int32(), mask=values < 0)
        yield names.take(numbers) if kind == pa.string() else numbers


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
def batch_writer(
    file: BinaryIO, format: str, extensions: bool, ranks: bool = False
) -> Iterator[BatchWriter]:
    """A writer of record batches to `file`, as `parquet` or `arrow` (IPC file, Feather 2)."""
    schema = packet_schema(extensions, ranks)
    if format == "parquet":
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(file, schema, options=options) as writer:
            yield writer
