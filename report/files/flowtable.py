"""The flows as one flat table: the columns of CSV, Parquet, Arrow and `--sort`."""

from __future__ import annotations

from functools import cache

from ...analyzer.errors import UsageError
from ...analyzer.results.flow import Flow
from ...analyzer.summary.options import FlowOrder
from .columns import RecordColumn, record_columns


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
