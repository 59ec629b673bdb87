"""Results for other programs: all of it as JSON, one table of it as CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from ...discovery.results import Discovery
from ...discovery.tracing.results import TraceResult
from ...replay.results.recover import RecoverResult
from ...replay.results.replay import ReplayResult
from ...replay.results.sweep import SweepResult
from .text import cell

Result = ReplayResult | SweepResult | RecoverResult | TraceResult


def encode(result: Result, format: str) -> bytes:
    """`json`, or a table as `csv`, `parquet` or `arrow`; ValueError for other formats.

    The table has a row per link and strategy (replay), per bin of the histograms (sweep), per
    candidate (recover-seed) or per flow (trace).
    """
    if format == "json":
        return msgspec.json.encode(result) + b"\n"
    rows = _rows(result)
    if format == "csv":
        return _csv(rows)
    if format in ("parquet", "arrow"):
        return _columnar(rows, format)
    raise ValueError(f"unknown format {format!r}")


def _rows(result: Result) -> list[dict[str, Any]]:
    match result:
        case ReplayResult():
            rows = [
                {"strategy": one.name, **msgspec.structs.asdict(link)}
                for one in result.strategies
                for link in one.links
            ]
            if not any(one.packets for one in result.strategies):
                for row in rows:
                    del row["wire_bytes_over_time"]
            return rows
        case TraceResult():
            return [msgspec.structs.asdict(flow) for flow in result.flows]
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


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    row["parameters"] = ",".join(f"{k}={v}" for k, v in row["parameters"].items())
    row["seeds"] = " ".join(map(str, row["seeds"]))
    return row


def _csv(rows: list[dict[str, Any]]) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(rows[0]) if rows else [])
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {k: cell(" ".join(map(str, v)) if isinstance(v, list) else v) for k, v in row.items()}
        )
    return sink.getvalue().encode()


def _columnar(rows: list[dict[str, Any]], format: str) -> bytes:
    import pyarrow
    from pyarrow import feather, parquet

    table, sink = pyarrow.Table.from_pylist(rows), io.BytesIO()
    if format == "parquet":
        parquet.write_table(table, sink)
    else:
        feather.write_feather(table, sink, compression="uncompressed")
    return sink.getvalue()


def json_schemas() -> dict[str, Any]:
    """JSON Schemas (draft 2020-12) of the results, by command."""
    results = {
        "replay": ReplayResult,
        "sweep": SweepResult,
        "recover-seed": RecoverResult,
        "discover": Discovery,
        "trace": TraceResult,
    }
    return {name: msgspec.json.schema(result) for name, result in results.items()}
