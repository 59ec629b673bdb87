"""Columns differ from each other and fit their table."""

from __future__ import annotations

import pytest

from rocescope.replay.aggregation.columns import cl, jb, pk, sm, ty, wk


@pytest.mark.parametrize("table", [pk, cl, ty, jb, wk, sm])
def test_columns_are_distinct_and_within_the_table(table):
    *columns, width = table
    assert len(set(columns)) == len(columns)
    assert max(columns) < width
