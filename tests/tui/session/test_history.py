"""The past of a live session: bounded, and differences that add up to the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import data

from rocescope.tui.session.columns import widths
from rocescope.tui.session.history import STEP_NS, History, as_then, between
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import (
    UNKNOWN,
    FlowBins,
    FlowColumns,
    Snapshot,
    SourceState,
    Timeline,
)


def ending(seconds: float, wide: int = 0) -> Snapshot:
    return Snapshot(
        SourceState("eth0", "live"),
        timeline=Timeline(columns={"wire_bytes": np.zeros(wide, np.int64)}),
        end_ns=int(seconds * STEP_NS),
    )


def test_one_snapshot_a_second_is_kept():
    history = History()
    for tenth in range(100):
        history.add(ending(tenth / 10))
    assert len(history) == 10 and history.span() == (0, 9 * STEP_NS)
    assert history.at(int(4.5 * STEP_NS)).end_ns == 4 * STEP_NS
    assert history.at(-5).end_ns == 0 and history.before(-5) is None


def test_memory_is_bounded_and_the_past_gets_thinner():
    history = History(budget_bytes=8 * 1000 * 50)
    for second in range(1000):
        history.add(ending(second, wide=1000))
        assert history.nbytes <= 8 * 1000 * 50
    assert history.span() == (0, 999 * STEP_NS)  # the beginning stays
    ends = [s.end_ns // STEP_NS for s in history._kept]
    assert ends[-10:] == list(range(990, 1000))  # and the last seconds are all there


def read_until(low_share):
    """A snapshot of the first part of a capture, and one of the whole."""
    path = str(data("i03_write_reorder5_AtoB"))
    session = Session.open([path])
    session.start()
    session.wait(300)
    whole = session.snapshot()
    start, end = session.whole()
    session.set_window((start, start + int((end - start) * low_share)))
    session.wait(300)
    part = session.snapshot()
    session.close()
    return part, whole


def test_what_came_between_adds_up_to_the_whole():
    part, whole = read_until(0.5)
    grown = between(whole, part)
    known = len(part.flows)
    for name in ("packets", "wire_bytes", "late", "retransmitted", "naks"):
        before, after = getattr(part.flows, name), getattr(whole.flows, name)
        sure = (before != UNKNOWN) & (after[:known] != UNKNOWN)
        total = before + getattr(grown.flows, name)[:known]
        assert (total[sure] == after[:known][sure]).all(), name
    paths = grown.paths["entropy"]
    flow = np.repeat(np.arange(len(whole.flows)), paths.seen())
    by_flow = np.bincount(flow, paths.wire_bytes, len(whole.flows))
    data_flows = whole.carries_data()
    assert by_flow[data_flows].tolist() == grown.flows.wire_bytes[data_flows].tolist()
    assert paths.width[data_flows] == pytest.approx(
        widths(flow, paths.wire_bytes.astype(float), len(whole.flows))[0][data_flows]
    )
    assert all(part.end_ns <= event.time_ns <= whole.end_ns for event in grown.events)
    assert between(whole, None) is whole


def test_unknown_stays_unknown():
    part, whole = read_until(0.5)
    late = part.flows.late.copy()
    late[0] = UNKNOWN
    part = replace(part, flows=replace(part.flows, late=late))
    assert between(whole, part).flows.late[0] == UNKNOWN


def test_what_flows_did_over_time_is_kept_once_and_cut_to_the_moment():
    bins = np.arange(20).reshape(10, 2)
    now = Snapshot(
        SourceState("eth0", "live"),
        addresses=("10.0.0.1", "10.0.0.2"),
        activity=bins,
        activity_bin_ns=STEP_NS,
        activity_start_ns=0,
        late=FlowBins(2 * STEP_NS, STEP_NS, bins.astype(np.uint32)),
        end_ns=10 * STEP_NS,
    )
    one_flow = replace(FlowColumns.none(), qp=np.array([7], np.uint32))
    history = History()
    history.add(replace(now, flows=one_flow, end_ns=int(3.5 * STEP_NS)))
    kept = history.at(4 * STEP_NS)
    assert not len(kept.activity) and not len(kept.late.values) and not kept.addresses
    then = as_then(kept, now)
    assert then.activity.tolist() == [[0], [2], [4], [6]]  # the bins up to 3 s, and one flow
    assert then.late.of(0) == [0, 2] and then.end_ns == kept.end_ns
    assert then.addresses == now.addresses
    assert not len(as_then(replace(kept, end_ns=-STEP_NS), now).activity)


def live_session():
    session = Session(lambda keep: None, "eth0", "live")
    for second in range(100):
        session.history.add(ending(second))
    return session


def test_stepping_back_and_forth():
    session = live_session()
    assert not session.step(1)
    assert session.step(-1) and session.looking_at == 98 * STEP_NS
    assert session.step(-1) and session.looking_at == 97 * STEP_NS
    assert session.step(1) and session.step(1) and session.looking_at is None
    session.look_at(0)
    assert not session.step(-1) and session.looking_at == 0


def test_windows_get_shorter_and_longer():
    session = live_session()
    session.scale(2)
    assert session.length_ns is None
    session.scale(0.5)
    assert session.length_ns == 60 * STEP_NS
    session.scale(0.5)
    assert session.length_ns == 30 * STEP_NS
    for _ in range(20):
        session.scale(0.5)
    assert session.length_ns == STEP_NS
    for _ in range(20):
        session.scale(2)
    assert session.length_ns is None


def test_the_record_of_the_chosen_flow_is_kept_with_the_moment():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.kind = "live"
    session.start()
    session.wait(300)
    now = session.snapshot()
    chosen, other = now.key(0), now.key(1)
    session.selected = chosen
    record = session.focus(session.selected)
    assert session.history.record(now.end_ns, chosen) is record and not session.until_now
    size = session.history.nbytes
    session.focus(session.selected)
    assert session.history.nbytes == size  # once a moment
    later = replace(now, end_ns=now.end_ns + 3 * STEP_NS)
    assert session.history.add(later) and session.history.record(later.end_ns, chosen) is None
    session.look_at(now.end_ns)
    assert session.focus(session.selected) is record and not session.until_now
    session.selected = other
    assert session.focus(session.selected).dest_qp == other.qp and session.until_now
    session.looking_at = None
    assert session.focus(session.selected).dest_qp == other.qp and not session.until_now
    session.close()


def test_records_count_as_memory_and_go_with_their_moment():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    session.wait(300)
    key = session.snapshot().key(0)
    session.selected = key
    record = session.focus(session.selected)
    session.close()
    history = History(budget_bytes=1_000_000)
    for second in range(300):
        assert history.add(ending(second))
        history.add_record(key, record)
        assert history.nbytes <= 1_100_000
    kept = [moment.end_ns for moment in history._kept]
    assert len(kept) == len(history._records) < 100
    assert all(history.record(moment, key) is record for moment in kept)
    history.clear()
    assert history.record(0, key) is None and not history.nbytes
