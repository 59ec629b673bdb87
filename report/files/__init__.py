"""Results for other programs: JSON, CSV, Parquet and Arrow."""

from __future__ import annotations

import msgspec

from ...analyzer.results.analysis import SCHEMA_VERSION, Analysis
from ...analyzer.words import printable_json
from ...version import VERSION


def versions() -> dict[str, str]:
    """Metadata of tables."""
    return {"rocescope.schema_version": SCHEMA_VERSION, "rocescope.version": VERSION}


def encode_json(result: msgspec.Struct) -> bytes:
    """A whole result as one line of JSON."""
    return printable_json(msgspec.json.encode(result)) + b"\n"


def encode(analysis: Analysis, format: str) -> bytes:
    """`json`, or a row per flow as `csv`, `parquet` or `arrow`; ValueError for other formats."""
    if format == "json":
        return encode_json(analysis)
    from .tables import encode_records, flow_columns

    about = {
        **versions(),
        "rocescope.complete": "true" if analysis.complete else "false",
        "rocescope.captures": msgspec.json.encode(analysis.captures).decode(),
        "rocescope.warnings": msgspec.json.encode(analysis.warnings).decode(),
    }
    return encode_records(flow_columns(), analysis.flows, format, about)
