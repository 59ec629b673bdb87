"""The flows as one flat table: the columns of CSV, Parquet and Arrow, and what can be sorted by.

Columns follow from the declaration of `Flow`: its scalars as they are, the
scalars of nested records with the record's name before them, and of every
distribution the count, median, 99th percentile and maximum. Lists and
mappings stay in the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from ...analyzer.errors import UsageError
from ...analyzer.results.analysis import Analysis, Flow, Quantiles

_QUANTILES = ("count", "p50", "p99", "max")
_KINDS: dict[type, type] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BoolType: bool,
}
_UNIT = re.compile(r"_(ns|bytes|packets|percent|bits_per_second)(?=_|$)")
_UNIT_NAMES = {"ns": "ns", "percent": "%", "bits_per_second": "bit/s"}


class FlowColumn(NamedTuple):
    """One column of the flow table."""

    name: str
    kind: type
    """int, float, bool or str; any value may be None."""
    unit: str
    meaning: str
    path: tuple[str, ...]
    """Attributes that lead from a Flow to the value."""

    def value(self, flow: Flow) -> Any:
        """The flow's value; None when it or a record on the way is unknown."""
        value: Any = flow
        for name in self.path:
            value = getattr(value, name)
            if value is None or value is msgspec.UNSET:
                return None
        if isinstance(value, list):
            return "; ".join(value)
        return float(value) if self.kind is float else value


@cache
def flow_columns() -> tuple[FlowColumn, ...]:
    """All columns, in the order of the records' declarations."""
    return tuple(_columns_of(Flow, ()))


def _columns_of(record: type, path: tuple[str, ...]) -> Iterator[FlowColumn]:
    information = inspect.type_info(record)
    assert isinstance(information, inspect.StructType)
    for field in information.fields:
        declared, meaning = _declared(field.type)
        here = (*path, field.name)
        if isinstance(declared, inspect.StructType):
            if declared.cls is Quantiles:
                for quantile in _QUANTILES:
                    kind = int if quantile == "count" else float
                    yield _column(
                        kind, f"{quantile}: {meaning}" if meaning else quantile, (*here, quantile)
                    )
            else:
                yield from _columns_of(declared.cls, here)
        elif type(declared) in _KINDS:
            yield _column(_KINDS[type(declared)], meaning, here)
        elif here == ("notes",):
            yield _column(str, "what limits the numbers of this flow", here)


def _declared(declared: inspect.Type) -> tuple[inspect.Type, str]:
    """A type without its metadata and its `None`, and its description."""
    meaning = ""
    if isinstance(declared, inspect.Metadata):
        meaning = (declared.extra_json_schema or {}).get("description", "")
        declared = declared.type
    if isinstance(declared, inspect.UnionType):
        (declared,) = (t for t in declared.types if not isinstance(t, inspect.NoneType))
    return declared, meaning


def _column(kind: type, meaning: str, path: tuple[str, ...]) -> FlowColumn:
    name = "_".join(path)
    found = None if path[-1] == "count" else _UNIT.search(name)
    unit = _UNIT_NAMES.get(found[1], found[1]) if found else ""
    return FlowColumn(name, kind, unit, meaning, path)


def flow_column(name: str) -> FlowColumn:
    """The column of that name; UsageError names the nearest when there is none."""
    columns = {column.name: column for column in flow_columns()}
    if name not in columns:
        from difflib import get_close_matches

        close = get_close_matches(name, columns, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "columns are those of --format csv"
        raise UsageError(f"--sort: there is no column {name!r}; {hint}")
    return columns[name]


def sort_flows(analysis: Analysis, name: str) -> Analysis:
    """The analysis with its flows in the order of a column, unknown values last.

    Numbers come largest first, text in alphabetical order.
    """
    column = flow_column(name)
    known = [flow for flow in analysis.flows if column.value(flow) is not None]
    unknown = [flow for flow in analysis.flows if column.value(flow) is None]
    known.sort(key=column.value, reverse=column.kind is not str)
    return msgspec.structs.replace(analysis, flows=known + unknown)
