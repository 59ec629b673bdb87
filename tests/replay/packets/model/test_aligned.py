"""Rows at the start of cache lines."""

import pytest

from rocescope.replay.packets.model.aligned import aligned


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (1000, 4)])
def test_rows_begin_at_a_line(rows: int, columns: int) -> None:
    table = aligned(rows, columns, -1)
    assert table.shape == (rows, columns) and (table == -1).all()
    assert table.flags.c_contiguous and table.ctypes.data % 64 == 0
