"""Names of flows that left: a set of names is the twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.measures.measuring import Departed

FLOW = np.dtype([("src", "i4"), ("dst", "i4"), ("dest_qp", "i4")])
names = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=20)


@given(st.lists(st.tuples(names, names), max_size=4))
def test_departed_is_a_set_of_names(steps):
    departed, twin = Departed(), set()
    for leaving, coming in steps:
        departed.add(np.array(leaving, FLOW))
        twin |= set(leaving)
        assert len(departed) == len(twin)
        assert departed.returned(np.array(coming, FLOW)) == sum(name in twin for name in coming)
