"""The sentence over the queue pairs is never a false all-clear."""

from __future__ import annotations

from dataclasses import replace

import factories_results as factories
import numpy as np
import pytest
from msgspec import structs

from rocescope.tui.session.snapshots.judged import Judged
from rocescope.tui.session.snapshots.snapshot import (
    UNKNOWN,
    FlowColumns,
    PathColumns,
    Snapshot,
    SourceState,
)
from rocescope.tui.session.words.sentences import (
    after_colon,
    queue_pairs,
    recovery,
    reordering,
)


def said(taps=("a",), judged=None, **columns):
    """The sentence over two flows of which nothing is known but `columns`."""
    empty = FlowColumns.none()
    names = ("qp", "packets", "data_packets", "wire_bytes", *FlowColumns.__slots__)
    two = {name: np.zeros(2, getattr(empty, name).dtype) for name in names}
    two |= {"data_packets": np.ones(2, np.int64), "wire_bytes": np.ones(2, np.int64)}
    two |= {name: np.array(values) for name, values in columns.items()}
    seen = Snapshot(
        SourceState("a", "capture", packets=9, tap_names=taps),
        flows=FlowColumns(**two),
        judged=judged or Judged(),
    )
    ones = np.ones(2, np.int64)
    paths = PathColumns("entropy", np.arange(3), ones, ones, ones, ones * 0, ones * 0, np.ones(2))
    return queue_pairs(replace(seen, paths={"entropy": paths}), paths)


def test_it_claims_only_what_happened_before_the_tap():
    assert said().endswith("; no packet late or lost before this tap.")
    assert said(taps=("a", "b")).endswith("; no packet late or lost before the first tap.")


def test_unknown_flows_are_not_cleared():
    assert said(late=[0, UNKNOWN]).endswith(
        "; no packet late or lost before this tap in 1 of 2 flows, the others unknown."
    )
    assert said(missing=[UNKNOWN, UNKNOWN]).endswith("; loss and order unknown.")


@pytest.mark.parametrize(
    ("column", "word"),
    [("late", "late"), ("missing", "missing"), ("naks", "NAKs"), ("rnr_naks", "RNR NAKs")],
)
def test_any_trouble_withdraws_it(column, word):
    text = said(**{column: [0, 3]})
    assert text.endswith(f"; 3 {word}.") and "no packet" not in text


def test_losses_between_taps_are_told():
    hops = Judged.of(factories.analysis(hops=[factories.hop()]), True)
    assert "71 lost between taps (3)" in said(judged=hops)


def test_a_flow_in_order_at_its_first_tap_may_be_late_at_others():
    flow = factories.flow(0, 100, reordered_packets=0)
    assert reordering(flow) == "Every packet of this flow arrived in order at this tap."
    several = structs.replace(flow, taps={"a": 100, "b": 100})
    first = "Every packet of this flow arrived in order at the tap that saw it first"
    assert reordering(several) == f"{first}."
    assert reordering(several, 9) == f"{first}; 9 late between taps (3)."
    nothing = "No packet was lost before the first tap or retransmitted"
    assert recovery(several) == f"{nothing}."
    assert recovery(several, between=3) == f"{nothing}; 3 lost between taps (3)."


def test_a_sentence_after_a_colon_has_no_capital_except_of_an_acronym() -> None:
    assert after_colon("Every packet arrived.") == "every packet arrived."
    assert after_colon("UD has no order.") == "UD has no order."
    assert after_colon("4.0 % of the packets arrive late.") == "4.0 % of the packets arrive late."
