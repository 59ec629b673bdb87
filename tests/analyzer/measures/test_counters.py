"""Counters of flows grow, merge and lose flows like every measure."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.measures import measuring as counters
from rocescope.analyzer.measures.measuring import Counters
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.cluster.reduce import read_state, write_state


def count_packets(counts, rows):
    np.add.at(counts, rows.flow, 1)


class Batch:
    """What a counter reads of a batch."""

    def __init__(self, flow):
        self.flow = np.array(flow, np.int32)
        self.n_flows = max(flow, default=-1) + 1
        self.rows = self


@pytest.fixture
def declared(monkeypatch):
    monkeypatch.setattr(counters, "kernels", lambda: {"seen_packets": count_packets})


def counted(*batches):
    found = Counters()
    for flow in batches:
        found.update(Batch(flow))
    return found


def test_without_a_declaration_there_is_no_counter():
    assert counted([0]).of(0) == {}
    assert counted([0]).columns(3).shape == (3, 0)


def test_counts_of_flows_and_of_flows_without_packets(declared):
    found = counted([0, 2, 2], [2])
    assert found.of(2) == {"seen_packets": 3}
    assert found.of(99) == {"seen_packets": 0}
    assert found.columns(4).tolist() == [[1], [0], [3], [0]]


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)), st.permutations(range(8)))
def test_parts_give_the_sum_of_the_whole(first, second, order):
    flow_map = np.array(order[:6], np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "kernels", lambda: {"seen_packets": count_packets})
        one, other = counted(first), counted(second)
    one.merge(other, flow_map)
    expected = np.bincount(np.array([*first, *flow_map[second]], np.int64), minlength=8)
    assert one.columns(8)[:, 0].tolist() == expected.tolist()


def test_a_file_of_the_state_holds_them(declared):
    file = io.BytesIO()
    write_state(file, counted([0, 1, 1]))
    file.seek(0)
    assert read_state(file, "state").columns(2).tolist() == [[1], [2]]


def test_flows_that_leave_take_their_counts(declared):
    found = counted([0, 1, 1, 2])
    found.keep(kept_flows(np.array([False, True, True])))
    assert found.columns(3).tolist() == [[2], [1], [0]]
