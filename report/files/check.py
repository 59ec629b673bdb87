"""Results of `rocescope check`: everything as JSON, the violations as CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
from msgspec import inspect

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.check import Check
from ...analyzer.results.conformance import Conformance, Violation


def check_of(analysis: Analysis) -> Check:
    """The part of an analysis that `check` prints."""
    assert isinstance(analysis.conformance, Conformance)
    return Check(
        version=analysis.version,
        complete=analysis.complete,
        captures=analysis.captures,
        conformance=analysis.conformance,
        warnings=analysis.warnings,
    )


def encode_check(check: Check, format: str) -> bytes:
    """`json`, or a row per violation as `csv`, `parquet` or `arrow`."""
    if format == "json":
        return msgspec.json.encode(check) + b"\n"
    rows = [msgspec.structs.asdict(violation) for violation in check.conformance.violations]
    if format == "csv":
        sink = io.StringIO(newline="")
        writer = csv.DictWriter(sink, Violation.__struct_fields__)
        writer.writeheader()
        writer.writerows(rows)
        return sink.getvalue().encode()
    return _columnar(rows, format)


def _columnar(rows: list[dict[str, Any]], format: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(field.name, _arrow_type(pa, field.type)) for field in _fields()])
    table, sink = pa.Table.from_pylist(rows, schema), io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _fields() -> tuple[inspect.Field, ...]:
    declared = inspect.type_info(Violation)
    assert isinstance(declared, inspect.StructType)
    return declared.fields


def _arrow_type(pa: Any, declared: inspect.Type) -> Any:
    while isinstance(declared, inspect.Metadata):
        declared = declared.type
    options = declared.types if isinstance(declared, inspect.UnionType) else (declared,)
    return pa.int64() if any(isinstance(t, inspect.IntType) for t in options) else pa.string()


def check_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the JSON of `rocescope check`."""
    title = f"rocescope check, schema version {Check.__struct_defaults__[0]}"
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return about | msgspec.json.schema(Check)
