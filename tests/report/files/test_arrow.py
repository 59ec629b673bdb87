"""The flow table in Parquet and Arrow, read back by other libraries."""

from __future__ import annotations

import csv
import io
import json

import duckdb
import factories_results as factories
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocescope.report.files import encode


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
