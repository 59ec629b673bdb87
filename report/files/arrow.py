"""The flow table as an Arrow table, for Arrow IPC and Parquet."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ...analyzer.results.analysis import Analysis
from .flowtable import flow_columns, flow_value

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def flow_schema(analysis: Analysis) -> Any:
    """Schema of the flow table; each field's metadata holds its unit and meaning."""
    fields = [
        pa.field(
            column.name,
            _TYPES[column.kind],
            metadata={"unit": column.unit, "meaning": column.meaning},
        )
        for column in flow_columns()
    ]
    about = {
        "rocescope.schema_version": analysis.schema_version,
        "rocescope.version": analysis.version,
        "rocescope.complete": "true" if analysis.complete else "false",
        "rocescope.captures": msgspec.json.encode(analysis.captures).decode(),
        "rocescope.warnings": msgspec.json.encode(analysis.warnings).decode(),
    }
    return pa.schema(fields, metadata=about)


def flow_arrow(analysis: Analysis) -> Any:
    """The flows as a pyarrow.Table, one row each."""
    schema = flow_schema(analysis)
    columns = [
        pa.array([flow_value(column, flow) for flow in analysis.flows], field.type)
        for column, field in zip(flow_columns(), schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def encode_parquet(analysis: Analysis) -> bytes:
    """The flow table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(flow_arrow(analysis), sink, compression="zstd")
    return sink.getvalue()


def encode_arrow(analysis: Analysis) -> bytes:
    """The flow table as an Arrow IPC file (Feather version 2)."""
    table = flow_arrow(analysis)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
