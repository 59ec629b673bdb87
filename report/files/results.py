"""Results as JSON, their Schemas, and the tables of `check` and `replay`."""

from __future__ import annotations

from typing import Any

import msgspec

from ...analyzer.results.analysis import (
    SCHEMA_VERSION,
    Analysis,
    Check,
    Conformance,
    LiveInterval,
    Violation,
)
from ...analyzer.results.compare import Comparison
from ...discovery.follow import FollowEvent
from ...discovery.results import Discovery
from ...discovery.tracing.results import TraceResult
from ...replay.results import (
    AggregationResult,
    RecoverResult,
    ReplayResult,
    SweepResult,
    short_titles,
)
from . import encode_json
from .tables import encode_csv, encode_records, record_columns

# JSON Schemas of the results.

RESULTS: dict[str, type] = {
    "analyze": Analysis,
    "analyze-live": LiveInterval,
    "check": Check,
    "compare": Comparison,
    "replay": ReplayResult,
    "sweep": SweepResult,
    "recover-seed": RecoverResult,
    "discover": Discovery,
    "trace": TraceResult,
    "trace-follow": FollowEvent,
    "aggregate": AggregationResult,
}
_TITLES = {
    "analyze": "analysis",
    "analyze-live": "interval of a live analysis",
    "check": "check",
    "compare": "comparison",
    "trace-follow": "event of trace --follow",
}
"""Results with a schema version."""


def json_schema(command: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the results of a command."""
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rocescope {_TITLES.get(command)}, schema version {SCHEMA_VERSION}",
    }
    return (about if command in _TITLES else {}) | msgspec.json.schema(RESULTS[command])


# Results of `rocescope check`: everything as JSON, the violations as CSV, Parquet or Arrow.


def encode_check(analysis: Analysis, format: str) -> bytes:
    """The part of an analysis that `check` prints.

    `json`, or a row per violation as `csv`, `parquet` or `arrow`.
    """
    assert isinstance(analysis.conformance, Conformance)
    if format != "json":
        return encode_records(record_columns(Violation), analysis.conformance.violations, format)
    return encode_json(
        Check(
            version=analysis.version,
            complete=analysis.complete,
            captures=analysis.captures,
            conformance=analysis.conformance,
            warnings=analysis.warnings,
        )
    )


# Results for other programs: all of it as JSON, one table of it as CSV, Parquet or Arrow.

Result = ReplayResult | SweepResult | RecoverResult | TraceResult | AggregationResult


def encode(result: Result, format: str) -> bytes:
    """`json`, or a table as `csv`, `parquet` or `arrow`; ValueError for other formats.

    The table has a row per link and strategy (replay), per bin of the histograms (sweep), per
    candidate (recover-seed), per flow (trace), or per scheme and job (aggregate).
    """
    if format == "json":
        return encode_json(result)
    rows = _rows(result)
    if format == "csv":
        return encode_csv(rows[0] if rows else (), (row.values() for row in rows))
    import pyarrow

    from .tables import encode_table

    return encode_table(pyarrow.Table.from_pylist(rows), format)


def _rows(result: Result) -> list[dict[str, Any]]:
    match result:
        case ReplayResult() if result.varied:
            return [
                {**one.settings, **_varied(msgspec.structs.asdict(row))}
                for one in result.varied
                for row in one.strategies
            ]
        case ReplayResult():
            rows = [
                {"strategy": name, **msgspec.structs.asdict(link)}
                for name, one in zip(
                    short_titles(result.strategies), result.strategies, strict=True
                )
                for link in one.links
            ]
            if not any(one.packets for one in result.strategies):
                for row in rows:
                    del row["wire_bytes_over_time"], row["queue_bytes_over_time"]
            return rows
        case TraceResult():
            return [msgspec.structs.asdict(flow) for flow in result.flows]
        case AggregationResult():
            return [
                {"scheme": one.name, "slots": one.slots, **msgspec.structs.asdict(job)}
                for one in result.schemes
                for job in one.jobs
            ]
        case SweepResult():
            sets = [("worst", result.distribution)]
            sets += [(one.layer, one.distribution) for one in result.layers]
            return [
                {"layer": name, **msgspec.structs.asdict(one)}
                for name, distribution in sets
                for one in distribution.histogram
            ]
        case RecoverResult():
            return [
                {"direction": switch.direction, **_flat(msgspec.structs.asdict(candidate))}
                for switch in result.switches
                for candidate in switch.candidates
            ]


def _varied(row: dict[str, Any]) -> dict[str, Any]:
    """One number per column."""
    row["parameters"] = ",".join(f"{k}={v}" for k, v in row["parameters"].items())
    for name in ("completion_ns", "over_bound_percent"):
        row[name] = None if row[name] is None else row[name].mean
    row["jobs_ns"] = " ".join(f"{k}={v}" for k, v in row["jobs_ns"].items())
    return row


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    row["parameters"] = ",".join(f"{k}={v}" for k, v in row["parameters"].items())
    row["seeds"] = " ".join(map(str, row["seeds"]))
    return row
