"""State per flow grows, leaves memory, merges and is saved as a dictionary by flow would."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.per_flow import (
    CodeCounts,
    PerFlow,
    Pool,
    Rows,
    Tables,
    kept_flows,
)
from rocescope.kernels.kernel import NamedTuple

FLOWS = 10
HOLDER = np.dtype([("pool", "i4"), ("table", "i8"), ("bits", "u1"), ("room", "u1")])
RECORD = np.dtype([("value", "i8")])


class Arrays(NamedTuple):
    """One array of each kind."""

    numbers: np.ndarray
    holders: np.ndarray
    scarce: np.ndarray
    twins: np.ndarray
    inner: np.ndarray
    tables: np.ndarray
    used: np.ndarray


class Measure(PerFlow[Arrays]):
    layout: ClassVar = {
        "numbers": Rows(per=2),
        "holders": Rows(),
        "scarce": Pool(("holders", "pool"), used=0, full=False),
        "twins": Pool(("holders", "pool"), used=0),
        "inner": Pool(("twins", None), used=1),
        "tables": Tables("holders", "table", "bits", used=2, base=1, room="room"),
    }
    fewest = 2

    def __init__(self):
        super().__init__(
            Arrays(
                np.zeros(0, np.int64),
                np.zeros(0, HOLDER),
                np.zeros(1, np.int64),
                np.zeros((0, 3), np.int32),
                np.zeros(0, np.int64),
                np.zeros(4, RECORD),
                np.zeros(3, np.int64),
            )
        )
        self.codes = CodeCounts(16, 1)

    def write(self, flow, value):
        """Values of every kind; some flows have no record, and few have a table."""
        self.grow(flow + 1)
        code = value % 16
        self.codes.see(code)
        self.codes.arrays.packets[flow, self.codes.arrays.column[code]] += 1
        a = self.arrays
        a.numbers[2 * flow : 2 * flow + 2] += (value, -value)
        holder = a.holders[flow]
        if value % 2 and not holder["pool"]:
            self.reserve("scarce", int(a.used[0]) + 1)
            a = self.arrays
            a.used[0] += 1
            holder["pool"] = a.used[0]
        if holder["pool"]:
            a.scarce[holder["pool"] - 1] += value
            a.twins[holder["pool"] - 1, 1] = self._inner(a.twins[holder["pool"] - 1, 1])
            self.arrays.inner[a.twins[holder["pool"] - 1, 1] - 1] += value
        if value % 3 == 0 and not holder["bits"]:
            self.reserve("tables", int(a.used[2]) + 4)
            a = self.arrays
            holder["table"], holder["bits"], holder["room"] = int(a.used[2]) + 1, 1, 2
            a.used[2] += 4
        if holder["bits"]:
            self.arrays.tables["value"][holder["table"] - 1 + value % 2] += value

    def _inner(self, place):
        if not place:
            self.arrays.used[1] += 1
        return place or self.arrays.used[1]

    def of(self, flow):
        """All that is known of a flow, without the places of its records."""
        if flow >= self.known_flows:
            return None
        a = self.arrays
        holder, pool, table = a.holders[flow], None, None
        if holder["pool"]:
            inner = a.twins[holder["pool"] - 1]
            pool = int(a.scarce[holder["pool"] - 1]), int(a.inner[inner[1] - 1]), inner[0]
        if holder["bits"]:
            at = holder["table"] - 1
            table = a.tables["value"][at : at + 2].tolist(), int(holder["room"])
        return (
            a.numbers[2 * flow : 2 * flow + 2].tolist(), pool, table, self.codes.of(flow).tolist()
        )  # fmt: skip


VALUES = st.lists(st.tuples(st.integers(0, FLOWS - 1), st.integers(0, 1000)), max_size=40)


def measured(values, measure=None):
    measure = measure or Measure()
    for flow, value in values:
        measure.write(flow, value)
    return measure


def same(one, other, flows=FLOWS):
    for flow in range(flows):
        assert one.of(flow) == other.of(flow)


@given(VALUES, st.lists(st.booleans(), min_size=FLOWS, max_size=FLOWS), VALUES)
def test_after_flows_left_the_others_go_on_as_if_alone(before, stays, after):
    kept = kept_flows(np.array(stays))
    measure, alone = measured(before), Measure()
    known = measure.known_flows
    alone.grow(len(kept.of(known)))
    measured([(int(kept.number[f]), v) for f, v in before if stays[f]], alone)
    measure.keep(kept)
    assert measure.known_flows == alone.known_flows
    assert measure.arrays.used.tolist() == alone.arrays.used.tolist()
    same(measured(after, measure), measured(after, alone))


@given(VALUES, VALUES, VALUES)
def test_flows_of_two_measures_merge_and_go_on(ours, theirs, after):
    measure, other = measured(ours), measured(theirs)
    flow_map = np.arange(2 * FLOWS, FLOWS, -1, dtype=np.int32)
    moved = [(int(flow_map[f]), v) for f, v in theirs]
    whole = Measure()
    if theirs:
        whole.grow(2 * FLOWS + 1)
    measured([*ours, *moved], whole)
    before = [other.of(f) for f in range(FLOWS)]
    measure.merge(other, flow_map)
    assert [other.of(f) for f in range(FLOWS)] == before
    assert measure.arrays.used.tolist() == whole.arrays.used.tolist()
    for flow in range(2 * FLOWS + 1):
        known = flow < FLOWS or flow in [f for f, _ in moved]
        assert not known or measure.of(flow) == whole.of(flow)
    same(measured(after, measure), measured(after, whole))


@given(VALUES, VALUES)
def test_a_file_holds_the_used_part_and_what_was_read_goes_on(values, after):
    measure, back = measured(values), Measure()
    arrays = measure.saved()["arrays"]
    assert len(arrays.numbers) == 2 * measure.known_flows
    assert len(arrays.tables) == measure.arrays.used[2]
    for made, was in ((back, measure), (back.codes, measure.codes)):
        made.known_flows = was.known_flows
        made.arrays = type(was.arrays)(*map(np.copy, was.saved()["arrays"]))
        made.restore()
    same(back, measure)
    same(measured(after, back), measured(after, measure))


def test_memory_after_the_used_part_is_not_copied_or_written():
    """Room doubles, and records of every reference have theirs."""
    measure = measured([(0, 3), (40, 5)])
    assert len(measure.arrays.holders) == 41
    measure.grow(42)
    assert len(measure.arrays.holders) == len(measure.arrays.twins) == 82
    assert measure.arrays.inner.size == measure.arrays.twins.size
    measure.merge(Measure(), np.zeros(0, np.int32))
    assert measure.known_flows == 42


def test_arrays_that_have_not_grown_keep_what_they_have():
    kept = kept_flows(np.array([True, False, True, True]))
    assert kept.of(3).tolist() == [0, 2]
    assert kept.holds(np.array([0, 1, 3, -1])).tolist() == [True, False, True, False]
