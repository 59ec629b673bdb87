"""Records as a flat table: CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...analyzer.words import printable
from .columns import RecordColumn

_FORMULA = ("=", "+", "-", "@")


def encode_records(
    columns: Sequence[RecordColumn],
    records: Sequence[object],
    format: str,
    about: Mapping[str, str] | None = None,
) -> bytes:
    """One row per record as `csv`, `parquet` or `arrow`; ValueError for other formats.

    about: metadata of the table in Parquet and Arrow.
    """
    if format == "csv":
        rows = ([column.value(record) for column in columns] for record in records)
        return encode_csv([column.name for column in columns], rows)
    from .arrow import arrow_table, encode_table  # pyarrow takes longer to load than captures

    return encode_table(arrow_table(columns, records, about), format)


def encode_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """CSV (RFC 4180) in UTF-8 with a header line; unknown values are empty."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerow(names)
    writer.writerows(map(_cell, row) for row in rows)
    return sink.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value of CSV; a name that a spreadsheet would run as a formula gets an apostrophe."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        value = printable(value)
        if value.startswith(_FORMULA):
            return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else value
