"""Which events are shown under a time window and a filter, and what is said of them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from captures import data
from tui_driver import drive, text_of, typed

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.events import Event
from rocescope.tui.session.session import Session
from rocescope.tui.session.words.shown_events import sentence, shown_events

CAPTURE = data("i03_write_reorder5_AtoB")


def shown(*keys):
    """The sentence, the tabs, and the times of the events of all lines."""
    lines = drive([CAPTURE], ("8", *keys), (130, 140), text_of)
    times = [
        float(t) for line in lines if (t := line[1:12].strip()) and re.fullmatch(r"\d+\.\d{6}", t)
    ]
    return lines[2], lines[1], times


@pytest.mark.thorough
def test_events_are_those_of_the_window_and_of_the_flows_that_pass():
    found = analyze([str(CAPTURE)], AnalyzeOptions())
    start = min(flow.first_time_ns for flow in found.flows)
    end = max(flow.last_time_ns for flow in found.flows)
    every = [((e.time_ns - start) / 1e9, e.kind, "QP 0x00002c" in e.text) for e in found.events]
    half = (end - start) / 2e9
    low, high = half / 2, half * 3 / 2
    said, tabs, times = shown("left_curly_bracket", "right_square_bracket")
    assert times and low <= min(times) and max(times) <= high
    assert said.strip().startswith(f"{len(times)} events: ") and f"Events {len(times)} " in tabs

    said, tabs, times = shown("slash", typed("qp == 0x2c"), "enter")
    wanted = [(time, kind) for time, kind, mine in every if mine]
    kinds = Counter(kind for _, kind in wanted)
    assert times == [round(time, 6) for time, _ in wanted] and f"Events {len(times)} " in tabs
    assert said.strip() == (
        f"{len(wanted)} of {len(every)} events pass the filter:"
        f" {kinds['nak']} NAKs, {kinds['rewind']} rewinds."
    )

    said, tabs, times = shown("slash", typed("qp == 0x99"), "enter")
    assert (
        not times
        and f"None of {len(every)} events belongs to a flow that passes the filter." in said
    )


def test_events_are_counted_by_connection():
    """The NAKs of a flow are events of the flow that answers; the rewinds are its own."""
    session = Session.open([str(CAPTURE)])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    every = shown_events(snapshot, np.ones(len(snapshot.flows), np.bool_))
    assert every is snapshot.events
    by_qp = Counter(re.search(r"QP (0x\w+):", e.text)[1] for e in every)  # both ways the same
    (qp, most), *_ = by_qp.most_common()
    assert sentence(snapshot, every, False).endswith(
        f"; the connection of {qp} has the most: {most}."
    )


def test_events_of_no_flow_stay_and_that_is_said():
    session = Session.open([str(CAPTURE)])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    apart = Event(
        time_ns=0, kind="plane_down", flow=None, frame_number=None, tap=None, text="plane 1 is down"
    )
    more = type(snapshot)(snapshot.source, flows=snapshot.flows, events=(apart, *snapshot.events))
    none = shown_events(more, np.zeros(len(more.flows), np.bool_))
    assert none == (apart,)
    assert sentence(more, none, True) == (
        f"1 of {len(more.events)} events passes the filter: 1 plane down;"
        " 1 of these belongs to no flow."
    )
