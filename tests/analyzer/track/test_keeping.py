"""A tracker without some flows continues as if it had never seen them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import ACK, WRITE_MIDDLE, packets

from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.track import state
from rocescope.analyzer.track.tracker import FlowTracker

QPS = 6
ROWS = st.lists(
    st.tuples(st.integers(0, QPS - 1), st.integers(0, 60), st.booleans()), min_size=1, max_size=60
)


def table(rows, start):
    """Every queue pair between hosts of its own, so that no flow can be a candidate of another."""
    return packets(
        [
            {"src": 2 * qp, "dst": 2 * qp + 1, "dest_qp": 100 + qp, "psn": psn, "ip_id": psn & 3,
             "time_ns": start + 1000 * at, "opcode": ACK if ack else WRITE_MIDDLE}
            for at, (qp, psn, ack) in enumerate(rows)
        ]
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(ROWS, st.lists(st.booleans(), min_size=QPS, max_size=QPS), ROWS)
def test_verdicts_and_counts_after_flows_left_are_those_without_them(before, stays, after):
    stays_of_qp = dict(enumerate(stays))
    with_all, without = FlowTracker(), FlowTracker()
    with_all.update(table(before, 0))
    first = table(before, 0)
    without.update(first.take(np.array([stays_of_qp[qp] for qp, _, _ in before])))
    qps = with_all.flows["dest_qp"] - 100
    with_all.keep(kept_flows(np.array([stays_of_qp[int(qp)] for qp in qps])))
    assert len(with_all) == len(without)
    later = table(after, 1_000_000_000)
    verdicts = [tracker.update(later).verdict.tolist() for tracker in (with_all, without)]
    assert verdicts[0] == verdicts[1]
    for name in ("dest_qp", "packets", "wire_bytes", "path_mtu", "peer", "next_in_pair"):
        assert with_all.flows[name].tolist() == without.flows[name].tolist()
    for name in ("arrivals", "missing", "reordered", "recovered", "duplicates", "retransmitted"):
        ours, theirs = (t.state.streams[name][: 2 * len(t)].tolist() for t in (with_all, without))
        assert ours == theirs
    used = [
        t.state.used[[state.USED_FLOWS, state.USED_PAIRS]].tolist() for t in (with_all, without)
    ]
    assert used[0] == used[1]


def test_events_of_flows_that_left_count_as_omitted():
    tracker = FlowTracker()
    jump = [(qp, psn, False) for psn in (0, 1) for qp in (0, 1)]
    tracker.update(table(jump, 0))
    far = packets(
        [{"src": 2 * qp, "dst": 2 * qp + 1, "dest_qp": 100 + qp, "psn": 1 << 22} for qp in (0, 1)]
    )
    tracker.update(far)  # two restarts
    assert tracker.state.used[state.USED_EVENTS] == 2
    tracker.keep(kept_flows(np.array([False, True])))
    assert tracker.state.used[[state.USED_EVENTS, state.OMITTED_EVENTS]].tolist() == [1, 1]
    assert tracker.state.events["flow"][0] == 0
