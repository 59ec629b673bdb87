"""Counting against sorting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.traffic.ordinals import ordinals, rows_by


@given(st.lists(st.integers(0, 9)))
def test_counting_agrees_with_plain_python(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert ordinals(column).tolist() == [values[:i].count(v) for i, v in enumerate(values)]
    assert rows_by(column).tolist() == sorted(range(len(values)), key=values.__getitem__)
