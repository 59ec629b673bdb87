"""What verdicts refer to, against a plain twin with dictionaries of everything."""

from __future__ import annotations

import numpy as np
import pytest
from captures import data
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.track.batch import (
    AHEAD,
    IN_ORDER,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.references import References
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import Registry

WRITE_MIDDLE = 0x07


class Twin:
    """The same for WRITEs of any flows, from everything that came so far."""

    def __init__(self):
        self.due, self.arrivals = {}, {}
        self.gaps, self.seen = {}, {}
        self.number = 0

    def see(self, flow, psn, kind, time, number):
        """(due, extent, late time, gap, other) of one packet."""
        due = psn if kind == IN_ORDER else self.due.get(flow, -1)
        extent = late = gap = other = -1
        count = self.arrivals.setdefault(flow, 0)
        if kind == AHEAD:
            gap, self.number = self.number, self.number + 1
            for k in range((psn - due) % (1 << 24)):
                self.gaps[flow, (due + k) % (1 << 24)] = gap, number, count, time
        elif kind in (REORDERED, OVERTAKEN) and (flow, psn) in self.gaps:
            gap, opener, before, since = self.gaps[flow, psn]
            extent, late = count - before, time - since
            other = opener if kind == REORDERED else self.seen[flow, psn]
        elif kind == RECOVERED and (flow, psn) in self.gaps:
            other = self.gaps[flow, psn][1]
        elif kind not in (IN_ORDER, RESTARTED, REORDERED, OVERTAKEN, RECOVERED):
            other = self.seen.get((flow, psn), -1)
        if kind in (IN_ORDER, AHEAD, RESTARTED, REORDERED, RECOVERED, RETRANSMITTED):
            self.seen[flow, psn] = number
            if kind != RECOVERED:
                self.gaps.pop((flow, psn), None)
        if kind in (IN_ORDER, AHEAD, RESTARTED):
            self.due[flow] = (psn + 1) % (1 << 24)
        self.arrivals[flow] += kind in (IN_ORDER, AHEAD, REORDERED, OVERTAKEN)
        return due, extent, late, gap, other


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(-6, 6), st.integers(1, 300_000)), max_size=120
    ),
    st.integers(1, 120),
)
def test_like_the_twin(steps, batch_rows):
    table = PacketTable.zeros(len(steps))
    table.opcode[:] = WRITE_MIDDLE
    table.dest_qp[:] = 5
    table.payload_bytes[:] = 1024
    table.wire_bytes[:] = 1094
    due, now = {0: 0xFFFFF0, 1: 100, 2: 7000}, 0
    for row, (flow, step, wait) in enumerate(steps):
        psn = (due[flow] + (step if step % 3 == 0 else 0)) % (1 << 24)
        due[flow] = max(due[flow], psn + 1) if step < 5 else (psn + 1)
        due[flow] %= 1 << 24
        now += wait
        table.src[row], table.dst[row] = flow + 1, 9
        table.psn[row], table.time_ns[row], table.ip_id[row] = psn, now, row + 1
    tracker, sights, twin = FlowTracker(), References(), Twin()
    for begin in range(0, len(table), batch_rows):
        part = table.slice(begin, min(begin + batch_rows, len(table)))
        batch = tracker.update(part)
        got = sights.update(tracker, batch, 1 + begin + np.arange(len(part)))
        for row in range(len(part)):
            columns = batch.flow[row], part.psn[row], batch.verdict[row], part.time_ns[row]
            flow, psn, kind, time = map(int, columns)
            expected = twin.see(flow, psn, kind, time, 1 + begin + row)
            names = ("due", "extent", "late_ns", "gap", "other")
            assert tuple(int(got[row][name]) for name in names) == expected
    assert sights.gaps == twin.number and sights.forgotten == 0


@pytest.mark.parametrize("ends", ["A B".split()])
def test_copies_refer_to_the_tap_before(ends):
    registry = Registry()
    names = [str(data(f"i01_write_loss0.5_AtoB.at{end}")) for end in ends]
    captures = [open_capture(name, registry.taps) for name in names]
    decoders = [Decoder(registry) for _ in captures]
    tables = [
        (decoder.decode(frames) for frames in capture.batches())
        for capture, decoder in zip(captures, decoders, strict=True)
    ]
    tracker, sights = FlowTracker(2), References()
    seen, begin, copies, unknown = [], 0, 0, 0
    for table in merge_tables(tables):
        batch = tracker.update(table)
        got = sights.update(tracker, batch, begin + np.arange(len(table)))
        rows = zip(
            table.psn.tolist(), table.ip_id.tolist(), table.opcode.tolist(), table.tap.tolist(),
            table.time_ns.tolist(), strict=True,
        )  # fmt: skip
        seen += rows
        for row in np.flatnonzero(batch.verdict == TAP_COPY).tolist():
            other = int(got["other"][row])
            copies += 1
            unknown += other < 0
            if other >= 0:
                psn, ip_id, opcode, tap, time = seen[begin + row]
                before = seen[other]
                assert before[:3] == (psn, ip_id, opcode) and before[3] != tap
                assert got["since_ns"][row] == time - before[4] and got["hop"][row] == 2
        begin += len(table)
    for capture in captures:
        capture.close()
    assert copies > 30_000 and unknown < copies / 100
