"""Result records as flat tables: CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import msgspec
from msgspec import inspect

from ...analyzer.errors import UsageError
from ...analyzer.results.base import Quantiles
from ...analyzer.results.flow import Flow
from ...analyzer.results.jobs import JobStep, TrainingJob
from ...analyzer.summary.names import FlowOrder
from ...analyzer.words import printable

# Result records as flat tables: the columns follow from the declaration of a record type.
#
# Columns are the scalars of a record, the scalars of inner records with the inner record's
# name as prefix, the count, median, 99th percentile and maximum of every distribution, and
# lists of scalars. Mappings and lists of records are in the JSON only.

_QUANTILES = ("count", "p50", "p99", "max")
_KINDS: dict[type, type] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BoolType: bool,
}
_UNIT = re.compile(r"_(ns|bytes|packets|percent|bits_per_second)(?=_|$)")
_UNIT_NAMES = {"ns": "ns", "percent": "%", "bits_per_second": "bit/s"}


class RecordColumn(NamedTuple):
    """One column of a table of records."""

    name: str
    kind: type
    """int, float, bool or str; any value may be None."""
    many: bool
    """Whether a value is a list of the kind."""
    unit: str
    meaning: str
    path: tuple[str, ...]
    """Attributes that lead from a record to the value."""
    joint: str = ""
    """What joins the texts of a list that is one text here."""

    def value(self, record: object) -> Any:
        """The record's value; None when it or a record on the way is unknown."""
        value: Any = record
        for name in self.path:
            value = getattr(value, name)
            if value is None or value is msgspec.UNSET:
                return None
        if self.joint:
            return self.joint.join(value)
        return float(value) if self.kind is float and not self.many else value


def record_columns(kind: type) -> tuple[RecordColumn, ...]:
    """The columns of a record type, in the order of the declarations."""
    return tuple(_columns_of(kind, ()))


def _columns_of(kind: type, path: tuple[str, ...]) -> Iterator[RecordColumn]:
    information = inspect.type_info(kind)
    assert isinstance(information, inspect.StructType)
    for field in information.fields:
        declared, meaning = _declared(field.type)
        here = (*path, field.name)
        if isinstance(declared, inspect.StructType):
            if declared.cls is not Quantiles:
                yield from _columns_of(declared.cls, here)
                continue
            for quantile in _QUANTILES:
                scalar = int if quantile == "count" else float
                what = f"{quantile}: {meaning}" if meaning else quantile
                yield _column(scalar, False, what, (*here, quantile))
        elif type(declared) in _KINDS:
            yield _column(_KINDS[type(declared)], False, meaning, here)
        elif isinstance(declared, inspect.ListType):
            item, _ = _declared(declared.item_type)
            if type(item) in _KINDS:
                yield _column(_KINDS[type(item)], True, meaning, here)


def _declared(declared: inspect.Type) -> tuple[inspect.Type, str]:
    """A type without its metadata and its `None`, and its description."""
    meaning = ""
    if isinstance(declared, inspect.Metadata):
        meaning = (declared.extra_json_schema or {}).get("description", "")
        declared = declared.type
    if isinstance(declared, inspect.UnionType):
        (declared,) = (t for t in declared.types if not isinstance(t, inspect.NoneType))
    return declared, meaning


def _column(kind: type, many: bool, meaning: str, path: tuple[str, ...]) -> RecordColumn:
    name = "_".join(path)
    found = None if path[-1] == "count" else _UNIT.search(name)
    unit = _UNIT_NAMES.get(found[1], found[1]) if found else ""
    return RecordColumn(name, kind, many, unit, meaning, path)


# Records as an Arrow table, for Arrow IPC and Parquet.

_ROWS = 4096
"""Records that are in memory at once."""
_TYPES = {int: "int64", float: "float64", bool: "bool", str: "string"}


def arrow_table(
    columns: Sequence[RecordColumn],
    records: Sequence[object],
    about: Mapping[str, str] | None = None,
) -> Any:
    """A pyarrow.Table, one row per record; `about` is its metadata.

    The metadata of each field holds its unit and meaning.
    """
    import pyarrow as pa

    schema = _schema(columns, about)
    arrays = [
        pa.array([column.value(record) for record in records], field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _schema(columns: Sequence[RecordColumn], about: Mapping[str, str] | None) -> Any:
    import pyarrow as pa

    fields = [
        pa.field(c.name, _type_of(c), metadata={"unit": c.unit, "meaning": c.meaning})
        for c in columns
    ]
    return pa.schema(fields, metadata=about)


class ParquetRecords:
    """A Parquet file of records that are never all in memory."""

    def __init__(
        self, file: BinaryIO, columns: Sequence[RecordColumn], about: Mapping[str, str]
    ) -> None:
        import pyarrow.parquet as pq

        self._columns, self._about = columns, about
        self._writer = pq.ParquetWriter(file, _schema(columns, about), compression="zstd")

    def write(self, records: Iterable[object]) -> None:
        """Append rows; OSError if the disk is full."""
        left = iter(records)
        while some := list(islice(left, _ROWS)):
            self._writer.write_table(arrow_table(self._columns, some, self._about))

    def close(self) -> None:
        """Write the end of the file, which stays open; a second time does nothing."""
        try:
            self._writer.close()
        finally:
            self._writer.is_open = False  # its deletion would try again


def _type_of(column: RecordColumn) -> Any:
    import pyarrow as pa

    kind = pa.type_for_alias(_TYPES[column.kind])
    return pa.list_(kind) if column.many else kind


def encode_table(table: Any, format: str) -> bytes:
    """A `parquet` or `arrow` file (IPC, Feather version 2); ValueError for other formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    elif format == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        raise ValueError(f"unknown format {format!r}")
    return sink.getvalue()


# Records as a flat table: CSV, Parquet or Arrow.

_FORMULA = ("=", "+", "-", "@")


def encode_records(
    columns: Sequence[RecordColumn],
    records: Sequence[object],
    format: str,
    about: Mapping[str, str] | None = None,
) -> bytes:
    """One row per record as `csv`, `parquet` or `arrow`; ValueError for other formats.

    about: metadata of the table in Parquet and Arrow.
    """
    if format == "csv":
        rows = ([column.value(record) for column in columns] for record in records)
        return encode_csv([column.name for column in columns], rows)

    return encode_table(arrow_table(columns, records, about), format)


def encode_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """CSV (RFC 4180) in UTF-8 with a header line; unknown values are empty."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerow(names)
    writer.writerows(map(_cell, row) for row in rows)
    return sink.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value of CSV; a name that a spreadsheet would run as a formula gets an apostrophe."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        value = printable(value)
        if value.startswith(_FORMULA):
            return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else value


# The flows as one flat table: the columns of CSV, Parquet, Arrow and `--sort`.


@cache
def flow_columns() -> tuple[RecordColumn, ...]:
    """Scalars in order of declaration, and the notes as one text."""
    return tuple(
        column._replace(meaning="limits of the numbers of this flow", many=False, joint="; ")
        if column.many
        else column
        for column in record_columns(Flow)
        if not column.many or column.name == "notes"
    )


def flow_column(name: str) -> RecordColumn:
    """The column of that name; UsageError with the most similar name if there is none."""
    columns = {column.name: column for column in flow_columns()}
    if name not in columns:
        from difflib import get_close_matches

        close = get_close_matches(name, columns, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "columns are those of --format csv"
        raise UsageError(f"--sort: there is no column {name!r}; {hint}")
    return columns[name]


def flow_order_by(name: str) -> FlowOrder:
    """Sort order by a column, unknown values last; errors as `flow_column`.

    Numbers are in descending order, texts in alphabetical order.
    """
    column = flow_column(name)

    def ordered(flows: list[Flow]) -> list[Flow]:
        known = [flow for flow in flows if column.value(flow) is not None]
        unknown = [flow for flow in flows if column.value(flow) is None]
        known.sort(key=column.value, reverse=column.kind is not str)
        return known + unknown

    return ordered


# Steps of training jobs, one row each.


class StepRow(NamedTuple):
    """A step and its job."""

    job: int
    job_name: str
    step: JobStep


def step_columns() -> tuple[RecordColumn, ...]:
    """The job, then the scalars of its step."""
    job = RecordColumn("job", int, False, "", "id of the job", ("job",))
    name = RecordColumn("job_name", str, False, "", "its name", ("job_name",))
    steps = (column._replace(path=("step", *column.path)) for column in record_columns(JobStep))
    return (job, name, *steps)


def step_rows(jobs: Iterable[TrainingJob]) -> list[StepRow]:
    """All steps of all jobs."""
    return [
        StepRow(job.id, job.name, step)
        for job in jobs
        if job.iterations is not None
        for step in job.iterations.steps
    ]
