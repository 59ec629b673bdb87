"""Sequences of result records that are also tables: for polars, pandas, Arrow and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .files.tables import record_columns

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

R = TypeVar("R")

_SHOWN_ROWS, _SHOWN_COLUMNS = 20, 16


class Records(Sequence[R], Generic[R]):
    """Records of one type; as a table, one row per record.

    The columns are the scalars of the record and of its inner records; lists of numbers and
    of texts stay lists. Tables need pyarrow, which rocescope installs; `to_polars` and
    `to_pandas` need those libraries.
    """

    def __init__(self, kind: type[R], records: Sequence[R]) -> None:
        self._kind = kind
        self._columns = record_columns(kind)
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Records[R]: ...
    def __getitem__(self, index: int | slice) -> R | Records[R]:
        if isinstance(index, slice):
            return Records(self._kind, self._records[index])
        return self._records[index]

    def __iter__(self) -> Iterator[R]:
        return iter(self._records)

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind.__name__} records>"

    def to_arrow(self) -> pyarrow.Table:
        """A pyarrow.Table; the metadata of each field holds its unit and meaning."""
        from .files.tables import arrow_table

        return arrow_table(self._columns, self._records)

    def to_polars(self) -> polars.DataFrame:
        """A polars.DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas.DataFrame."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table for any library that reads the Arrow PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """The first rows and columns; every text is escaped, because names come from packets."""
        columns = self._columns[:_SHOWN_COLUMNS]
        head = "".join(f"<th title='{escape(c.meaning)}'>{escape(c.name)}</th>" for c in columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{_cell(c.value(record))}</td>" for c in columns) + "</tr>"
            for record in self._records[:_SHOWN_ROWS]
        )
        hidden = len(self._columns) - len(columns)
        more = f" and {hidden} more columns: to_polars() has all" if hidden else ""
        said = f"{min(len(self), _SHOWN_ROWS)} of {len(self)} rows{more}"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{said}</p>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
