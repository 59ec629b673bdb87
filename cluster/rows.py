"""Rows of packet tables in Parquet files, with checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .work import damaged

_BUFFERED_ROWS = 1 << 17


class _Writer(pq.ParquetWriter):  # type: ignore[misc]
    def __del__(self) -> None:
        """Nothing: a file that is not complete is of no use, and may fail again on a full disk."""


class ColumnWriter:
    """Writes columns of numpy arrays in pieces; dtypes: of each column."""

    def __init__(self, path: str, dtypes: dict[str, np.dtype[Any]]) -> None:
        schema = pa.schema([(name, pa.from_numpy_dtype(d)) for name, d in dtypes.items()])
        self._schema = schema
        self._file = pa.OSFile(os.fsencode(path), "wb")  # of a text it would take only UTF-8
        self._writer = _Writer(
            self._file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        self._pending: list[dict[str, Any]] = []
        self._rows = 0

    def write(self, columns: dict[str, Any]) -> None:
        """Add rows; the arrays are kept until they are written."""
        self._pending.append(columns)
        self._rows += len(next(iter(columns.values())))
        if self._rows >= _BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if self._rows:
            names = self._schema.names
            joined = [np.concatenate([p[name] for p in self._pending]) for name in names]
            table = pa.table([pa.array(column) for column in joined], schema=self._schema)
            self._writer.write_table(table)
        self._pending, self._rows = [], 0

    def close(self) -> None:
        """Complete the file."""
        self.flush()
        self._writer.close()
        self._file.close()

    @property
    def pending_rows(self) -> int:
        """Rows in memory."""
        return self._rows


def read_columns(path: str, batch_rows: int = _BUFFERED_ROWS) -> Iterator[dict[str, Any]]:
    """The columns of a file in pieces; UnreadableInput if it is damaged."""
    try:
        file = pq.ParquetFile(pa.OSFile(os.fsencode(path)), page_checksum_verification=True)
        for batch in file.iter_batches(batch_size=batch_rows):
            yield {
                name: column.to_numpy(zero_copy_only=True)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
    except (pa.ArrowException, OSError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = "no such file" if missing else str(error).splitlines()[0][:200]
        raise damaged(path, why) from None
