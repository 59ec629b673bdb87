"""Which queues pauses make."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from cases import capture, case_of, table_of
from conformance_traces import write

from rocescope.analyzer.diagnosis import limits
from rocescope.analyzer.diagnosis.known import CLOCKS_NS
from rocescope.analyzer.diagnosis.pausing import DRAINS, made_by, spans_at, too_short
from rocescope.analyzer.results.captures import Pause, PauseSpan

MS = 1_000_000
WINDOW = 2 * MS
SLACK = WINDOW + CLOCKS_NS
PAUSES = [(100 * MS, 110 * MS), (200 * MS, 204 * MS)]


@pytest.mark.parametrize(
    ("queue", "made"),
    [
        ((100 * MS, 110 * MS), True),
        ((100 * MS - SLACK, 110 * MS), True),
        ((99 * MS - SLACK, 110 * MS), False),  # it was there before
        ((102 * MS, 112 * MS + 2 * SLACK), True),  # it drains
        ((100 * MS, 100 * MS + DRAINS * 14 * MS), True),
        ((100 * MS, 106 * MS + DRAINS * 20 * MS), False),  # something else makes it last
        ((111 * MS + SLACK, 150 * MS), False),  # after it
        ((200 * MS, 204 * MS + DRAINS * 4 * MS), True),
        ((0, 1000 * MS), False),
    ],
)
def test_a_queue_begins_in_a_pause_and_drains_after_it(queue, made):
    assert made_by(PAUSES, queue, WINDOW, 10 * MS) == made


@pytest.mark.parametrize("seconds", [1, 60])
@pytest.mark.parametrize(
    ("paused_ns", "wait_ns", "made"),
    [(1_000, 300_000, False), (200_000, 300_000, True), (200_000, 500_000, False)],
)
def test_windows_too_wide_for_a_pause_leave_it_to_the_waits(seconds, paused_ns, wait_ns, made):
    window = seconds * 1000 * MS // 128
    queue = 10 * window, 11 * window
    pause = queue[0] + window // 2, queue[0] + window // 2 + paused_ns
    assert too_short(paused_ns, window)
    assert made_by([pause], queue, window, wait_ns) == made


def test_without_pauses():
    assert not made_by([], (0, 1), WINDOW, 0)


def test_pauses_of_a_tap_of_all_priorities():
    rows = [write(0), write(1)]
    one = capture(table_of(rows))
    spans = [[PauseSpan(30, 40)], [PauseSpan(10, 20), PauseSpan(50, 60)], []]
    pauses = [Pause(p, 1, 0, 9, 10, 10, 60, spans=s) for p, s in enumerate(spans)]
    tap = msgspec.structs.replace(one.taps[0], pauses=pauses)
    case = case_of(rows, captures=[msgspec.structs.replace(one, taps=[tap])])
    assert spans_at(case, tap.name) == [(10, 20), (30, 40), (50, 60)]
    assert spans_at(case, "another") == []


@pytest.mark.parametrize(("paused_ns", "said"), [(1_000, 1), (5_000 * MS, 0)])
def test_limits_tell_where_windows_are_too_wide(paused_ns, said):
    rows = [write(0), write(1)]
    one = capture(table_of(rows))
    pause = Pause(None, 1, 0, 9, 10.0, 10, 60, spans=[PauseSpan(10, 10 + paused_ns)])
    tap = msgspec.structs.replace(one.taps[0], pauses=[pause])
    case = case_of(rows, captures=[msgspec.structs.replace(one, taps=[tap])])
    case = replace(case, ways=SimpleNamespace(window_ns=470 * MS))
    lines = [line for line in limits._pauses(case) if "in steps of 470 ms" in line]
    assert len(lines) == said
