"""The flow table in Parquet and Arrow, read back by other libraries."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import duckdb
import factories_results as factories
import jsonschema
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocescope.analyzer.results.analysis import Analysis
from rocescope.report.files import encode
from rocescope.report.files.results import RESULTS, json_schema
from rocescope.report.files.tables import flow_columns

# The flow table in Parquet and Arrow, read back by other libraries.

# The flow table in Parquet and Arrow, read back by other libraries.


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_same_values_as_csv(format: str) -> None:
    data = io.BytesIO(encode(factories.analysis(), format))
    frame = pl.read_parquet(data) if format == "parquet" else pl.read_ipc(data)
    rows = list(csv.DictReader(io.StringIO(encode(factories.analysis(), "csv").decode())))
    assert frame.columns == list(rows[0])
    for found, expected in zip(frame.iter_rows(named=True), rows, strict=True):
        assert {name: "" if v is None else str(v) for name, v in found.items()} == expected


def test_metadata_tells_units_and_trust() -> None:
    schema = pq.read_schema(io.BytesIO(encode(factories.doubtful_analysis(), "parquet")))
    about = schema.metadata
    assert about[b"rocescope.complete"] == b"false"
    assert json.loads(about[b"rocescope.captures"])[0]["taps"][0]["dropped_frames"] == 1_234
    field = schema.field("goodput_bits_per_second")
    assert field.type == pa.float64() and field.metadata[b"unit"] == b"bit/s"


def test_no_flows_is_an_empty_table() -> None:
    table = pq.read_table(io.BytesIO(encode(factories.analysis(flows=[]), "parquet")))
    assert table.num_rows == 0 and table.schema.field("src").type == pa.string()


def test_duckdb_reads_it(tmp_path: object) -> None:
    path = f"{tmp_path}/flows.parquet"
    with open(path, "wb") as file:
        file.write(encode(factories.analysis(), "parquet"))
    query = f"SELECT sum(packets), count(reordering_ratio) FROM '{path}'"
    assert duckdb.sql(query).fetchall() == [(142_808, 4)]


# JSON and CSV against hand-made results and golden files.


def test_json_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    text = msgspec.json.format(encode(factories.analysis(), "json"), indent=1)
    golden("tests/golden/analysis.json", text.decode())


def test_csv_is_as_it_was(golden: Callable[[str, str], None]) -> None:
    golden("tests/golden/flows.csv", encode(factories.analysis(), "csv").decode())


def test_json_comes_back_as_the_same_records() -> None:
    for analysis in (factories.analysis(), factories.doubtful_analysis()):
        assert msgspec.json.decode(encode(analysis, "json"), type=Analysis) == analysis


def test_unknown_is_null_and_empty_never_zero() -> None:
    analysis = factories.analysis(flows=[factories.ack_flow(0, 5)])
    flow = json.loads(encode(analysis, "json"))["flows"][0]
    assert flow["reordered_packets"] is None and flow["missing_packets"] == 0
    (row,) = csv.DictReader(io.StringIO(encode(analysis, "csv").decode()))
    assert row["reordered_packets"] == "" and row["missing_packets"] == "0"
    assert row["reordering_ratio"] == "" and row["owner_pid"] == ""


def test_columns_are_flow_scalars_then_nested_ones() -> None:
    columns = {column.name: column for column in flow_columns()}
    assert len(columns) == len(flow_columns())
    flow = factories.lossy_flow(7)
    values = {name: column.value(flow) for name, column in columns.items()}
    assert values["id"] == 7
    assert values["recovery_rewinds"] == 99
    assert values["recovery_gap_to_nak_ns_p50"] == 3_500
    assert values["recovery_gap_to_nak_ns_max"] == 60_000
    assert values["latency_read_to_first_response_ns_p99"] is None
    assert columns["recovery_gap_to_nak_ns_p50"].unit == "ns"
    assert columns["wire_bytes"].unit == "bytes"
    assert "opcodes" not in columns and "paths" not in columns


# JSON Schemas against hand-made results.


@pytest.mark.parametrize("command", RESULTS)
def test_every_schema_is_valid_and_strict(command: str) -> None:
    schema = json_schema(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, schema)


@pytest.mark.parametrize(
    "analysis",
    [factories.analysis(), factories.clean_analysis(), factories.doubtful_analysis()],
    ids=["analysis", "clean", "doubtful"],
)
def test_json_matches_the_schema(analysis: Analysis) -> None:
    text = encode(analysis, "json")
    assert text.startswith(b'{"schema_version":"1.6"') and text.endswith(b"}\n")
    jsonschema.validate(json.loads(text), json_schema("analyze"))
