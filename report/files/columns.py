"""Result records as flat tables: the columns follow from the declaration of a record type.

Columns are the scalars of a record, the scalars of inner records with the inner record's
name as prefix, the count, median, 99th percentile and maximum of every distribution, and
lists of scalars. Mappings and lists of records are in the JSON only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from ...analyzer.results.base import Quantiles

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
