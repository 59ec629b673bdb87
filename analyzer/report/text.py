"""JSON, JSON Schema and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from ..results import SCHEMA_VERSION, Analysis
from .flowtable import flow_columns


def encode_json(analysis: Analysis) -> bytes:
    """The whole analysis as one line of JSON; `schema_version` comes first."""
    return msgspec.json.encode(analysis) + b"\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `encode_json`."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rocescope analysis, schema version {SCHEMA_VERSION}",
    }
    return head | msgspec.json.schema(Analysis)


def encode_csv(analysis: Analysis) -> bytes:
    """The flow table as CSV (RFC 4180) in UTF-8 with a header line; unknown values are empty."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    columns = flow_columns()
    writer.writerow(column.name for column in columns)
    for flow in analysis.flows:
        writer.writerow(_cell(column.value(flow)) for column in columns)
    return sink.getvalue().encode()


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
