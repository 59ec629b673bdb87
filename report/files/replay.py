"""Results for other programs: all of it as JSON, one table of it as CSV, Parquet or Arrow."""

from __future__ import annotations

from typing import Any

import msgspec

from ...discovery.tracing.results import TraceResult
from ...replay.results.aggregation import AggregationResult
from ...replay.results.recover import RecoverResult
from ...replay.results.replay import ReplayResult, short_titles
from ...replay.results.sweep import SweepResult
from . import encode_json
from .rows import encode_csv

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

    from .arrow import encode_table

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
