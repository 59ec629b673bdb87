"""The time window never leaves the capture."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import factories_results as factories
import pytest
from captures import data
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UnreadableInput
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
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey

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
