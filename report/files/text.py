"""JSON, JSON Schema and CSV."""

from __future__ import annotations

from typing import Any

import msgspec

from ...analyzer.results.analysis import SCHEMA_VERSION, Analysis
from ...analyzer.results.compare import Comparison
from ...analyzer.results.live import LiveInterval

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def encode_json(analysis: Analysis) -> bytes:
    """The whole analysis as one line of JSON; `schema_version` is the first field."""
    return msgspec.json.encode(analysis) + b"\n"


def encode_interval(interval: LiveInterval) -> bytes:
    """An interval of a live analysis as one line of JSON."""
    return msgspec.json.encode(interval) + b"\n"


def encode_comparison(comparison: Comparison) -> bytes:
    """The result of `compare` as one line of JSON."""
    return msgspec.json.encode(comparison) + b"\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `encode_json`."""
    return _titled("analysis") | msgspec.json.schema(Analysis)


def interval_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `encode_interval`."""
    return _titled("interval of a live analysis") | msgspec.json.schema(LiveInterval)


def comparison_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `encode_comparison`."""
    return _titled("comparison") | msgspec.json.schema(Comparison)


def _titled(what: str) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rocescope {what}, schema version {SCHEMA_VERSION}",
    }


def encode_csv(analysis: Analysis) -> bytes:
    """The flow table as CSV (RFC 4180) in UTF-8 with a header line; unknown values are empty."""
    import csv
    import io

    from .flowtable import flow_columns, flow_value

    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    columns = flow_columns()
    writer.writerow(column.name for column in columns)
    for flow in analysis.flows:
        writer.writerow(cell(flow_value(column, flow)) for column in columns)
    return sink.getvalue().encode()


def cell(value: Any) -> Any:
    """A value of CSV; a name that a spreadsheet would run as a formula gets an apostrophe."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else value
