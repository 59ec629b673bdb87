"""Room that is made ahead changes only what growing costs."""

from __future__ import annotations

import numpy as np
import pytest
from captures import data
from hypothesis import given
from hypothesis import strategies as st
from traffic import batches, packets

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.track.batch import TAP_COPY
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import MANY_TAPS, Taps


def test_expected_flows_are_tracked_as_others_and_nothing_grows_for_them():
    taps, plain, expecting = Taps(), FlowTracker(), FlowTracker()
    expecting.expect(1_000)
    room = expecting.state
    verdicts = []
    with open_capture(str(data("i01_write_loss0.5_AtoB.atB")), taps) as capture:
        decoder = Decoder(Registry(taps=taps))
        for frames in capture.batches():
            table = decoder.decode(frames)
            verdicts.append((plain.update(table).verdict, expecting.update(table).verdict))
    assert verdicts and all((a == b).all() for a, b in verdicts)
    assert (plain.flows == expecting.flows).all() and len(plain) == len(expecting) > 0
    for name in ("flows", "streams", "slots", "recents"):
        assert getattr(expecting.state, name) is getattr(room, name)
    expecting.expect(10)
    assert len(expecting.state.flows) == 1_000


@pytest.mark.parametrize("taps", [600, MANY_TAPS + 1])
def test_taps_that_appear_one_by_one_cost_no_more_than_all_at_once(taps):
    """60,000 interfaces of a capture are MANY_TAPS taps and one for the rest."""
    tracker, copied = FlowTracker(), 0
    for tap in range(taps):
        before = tracker.state.copies
        tracker.see_taps(tap + 1)
        tracker.state.copies[tap, tap // 2] += tap
        if tracker.state.copies is not before:
            copied += before.size
        tracker.ran(tap, 7)
    assert copied < 1.5 * taps * taps
    assert tracker.copies.shape == (taps, taps)
    assert tracker.copies.sum() == sum(range(taps))
    assert (tracker.state.began[:taps] == 7).all()


@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=80),
    st.lists(st.integers(0, 80), max_size=3),
)
def test_packets_per_opcode_are_counted_in_few_columns(rows, cuts):
    """As in a plain table of all 256 opcodes, however many flows and opcodes appear, and when."""
    tracker, expected = FlowTracker(), np.zeros((71, 256), np.int64)
    table = packets(
        [{"dest_qp": 2 + qp, "opcode": op, "psn": i, "ip_id": i} for i, (qp, op) in enumerate(rows)]
    )
    for part in batches(table, cuts):
        found = tracker.update(part)
        kept = found.verdict != TAP_COPY
        np.add.at(expected, (part.dest_qp[kept].astype(np.int64) - 2, part.opcode[kept]), 1)
    numbers = tracker.flows["dest_qp"].astype(np.int64) - 2
    assert np.array_equal(tracker.opcodes(np.arange(len(tracker))), expected[numbers])
    assert tracker._opcodes.arrays.packets.shape[1] <= max(8, 2 * len({op for _, op in rows}))
