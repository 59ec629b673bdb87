"""The key of a row is its place in the order of one process."""

from __future__ import annotations

import numpy as np

from rocescope.cluster.outline import KEY, Outline
from rocescope.cluster.reduce import in_order


def test_keys_sort_by_chunk_time_capture_and_row() -> None:
    keys = np.array([(1, 5, 0, 0), (0, 9, 1, 3), (0, 9, 0, 7), (0, 9, 1, 2), (0, 8, 1, 9)], KEY)
    assert in_order(keys).tolist() == [4, 2, 3, 1, 0]


def test_a_partition_without_rows_has_an_empty_outline() -> None:
    assert (len(Outline().flow_keys), Outline().packets) == (0, 0)
