"""The past of a live session: bounded, and differences that add up to the whole."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import factories_results as factories
import numpy as np
import pytest
from captures import data
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UnreadableInput
from rocescope.tui.session.columns import widths
from rocescope.tui.session.diagnosing import (
    EVERY_S,
    MOST_FLOWS,
    MOST_LIVE_FLOWS,
    PART,
    Diagnosing,
    Marks,
    around,
    moved,
    scaled,
)
from rocescope.tui.session.history import STEP_NS, History, as_then, between
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import (
    UNKNOWN,
    FlowBins,
    FlowColumns,
    FlowKey,
    Snapshot,
    SourceState,
    Timeline,
)

# The past of a live session: bounded, and differences that add up to the whole.


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


# The time window never leaves the capture.

# The time window never leaves the capture.

WHOLE = (1_000_000_000, 9_000_000_000)


def test_by_example():
    assert scaled(None, WHOLE, 0.5) == (1_000_000_000, 5_000_000_000)
    assert moved((1_000_000_000, 5_000_000_000), WHOLE, 0.5) == (3_000_000_000, 7_000_000_000)
    assert moved((6_000_000_000, 8_000_000_000), WHOLE, 5) == (7_000_000_000, 9_000_000_000)
    assert scaled((2_000_000_000, 7_000_000_000), WHOLE, 2) is None
    assert around(None, WHOLE, 4.0) == (4_000_000_000, 6_000_000_000)


@given(st.integers(*WHOLE), st.integers(0, 4_000_000_000), st.floats(-10, 10), st.floats(0.01, 10))
def test_it_stays_inside(low, length, by, factor):
    window = (min(low, WHOLE[1] - length), min(low, WHOLE[1] - length) + length)
    window = (max(window[0], WHOLE[0]), window[1])
    shifted = moved(window, WHOLE, by)
    assert shifted[1] - shifted[0] == window[1] - window[0]
    assert WHOLE[0] <= shifted[0] and shifted[1] <= WHOLE[1]
    resized = scaled(window, WHOLE, factor)
    assert resized is None or (WHOLE[0] <= resized[0] and resized[1] <= WHOLE[1])


# Marks of flows.


def test_a_second_press_takes_the_mark_away():
    marks, key = Marks(), FlowKey("10.0.0.1", "10.0.0.2", 17)
    assert marks.toggle(key) and marks.flows == {key: ""}
    marks.flows[key] = "slow"
    assert marks.toggle(FlowKey("10.0.0.1", "10.0.0.2", 18))
    assert not marks.toggle(key) and len(marks.flows) == 1
    assert Marks().flows == {}


# When a session is diagnosed, and what it is told.


class Clock:
    now = 100.0
    worked = 0.0

    def __call__(self):
        return self.now

    def work(self):
        return self.worked


def feed(clock, took=0.0, flows=6, error=None):
    """A feed whose analysis takes some time."""

    def analysis():
        clock.now += 3 * took  # a busy machine
        clock.worked += took
        if error is not None:
            raise error
        return factories.analysis()

    measuring = SimpleNamespace(tracker=range(flows), numbering=0)
    pipeline = SimpleNamespace(lock=nullcontext(), measuring=measuring)
    return SimpleNamespace(pipeline=pipeline, analysis=analysis)


def test_a_running_session_waits_a_second_then_twenty_times_the_processor_time():
    clock = Clock()
    diagnosing = Diagnosing(clock, clock.work)
    assert not diagnosing.is_due(True)
    clock.now += EVERY_S
    assert diagnosing.is_due(True)
    diagnosing.run(feed(clock, took=0.5), True)
    assert diagnosing.judged.findings and not diagnosing.judged.final
    clock.now += PART * 0.5 - 0.1
    assert not diagnosing.is_due(True)
    clock.now += 0.2
    assert diagnosing.is_due(True)


def test_the_end_is_diagnosed_once():
    clock = Clock()
    diagnosing = Diagnosing(clock)
    assert diagnosing.is_due(False)
    diagnosing.run(feed(clock), False)
    assert diagnosing.judged.final and not diagnosing.is_due(False)
    diagnosing.begin()
    assert diagnosing.is_due(False) and diagnosing.judged.diagnosis is None


@pytest.mark.parametrize(("running", "most"), [(True, MOST_LIVE_FLOWS), (False, MOST_FLOWS)])
def test_too_many_flows_are_no_all_clear(running, most):
    clock = Clock()
    diagnosing = Diagnosing(clock)
    diagnosing.run(feed(clock, flows=most + 1), running)
    assert diagnosing.judged.diagnosis is None
    assert "too many to diagnose here: rocescope analyze --brief" in diagnosing.judged.why


def test_an_input_without_packets_says_why():
    """At its end: before, its first frame may still come."""
    clock = Clock()
    diagnosing = Diagnosing(clock)
    diagnosing.run(feed(clock, error=UnreadableInput("a.pcap: no frame in it")), True)
    assert diagnosing.judged.why == Judged().why and not diagnosing.judged.final
    diagnosing.run(feed(clock, error=UnreadableInput("no RoCE packet")), False)
    assert diagnosing.judged.why == "no RoCE packet" and diagnosing.judged.final
    other = Diagnosing(clock)
    other.give_up()
    assert other.judged.final and other.judged.why == "Nothing was read."


def test_packets_read_anew_are_not_judged_by_what_was_read_before():
    clock = Clock()
    diagnosing = Diagnosing(clock)
    again = feed(clock)
    first = again.analysis

    def analysis():
        diagnosing.begin()
        return first()

    again.analysis = analysis
    diagnosing.run(again, False)
    assert diagnosing.judged.diagnosis is None


def test_a_session_is_diagnosed_like_its_capture():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    assert session.wait(300)
    assert session.diagnosis_due() and session.snapshot().judged.diagnosis is None
    session.diagnose()
    assert not session.diagnosis_due()
    assert session.snapshot().judged.diagnosis == session.analysis().diagnosis
    session.close()
