"""Times as seconds since the start, UTC and local."""

from __future__ import annotations

import time

import pytest
from captures import DATA
from tui_driver import each, text_of, typed

from rocescope.tui.clock import MODES, Clock

START = 1_795_264_523_416_046_308
"""2026-11-21 12:35:23.416046308 UTC."""


@pytest.fixture
def in_new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_time_in_every_mode(in_new_york):
    shown = [Clock(START, mode) for mode in MODES]
    later = START + 90_000_000_000
    assert [clock.text(later) for clock in shown] == ["90.000", "12:36:53.416", "07:36:53.416"]
    assert [clock.text(later, 9)[-9:] for clock in shown] == ["000000000", "416046308", "416046308"]
    assert [clock.point(START, 0) for clock in shown] == ["0 s", "12:35:23 UTC", "07:35:23"]
    assert [clock.day() for clock in shown] == ["", "2026-11-21 UTC", "2026-11-21 EST"]


@pytest.mark.parametrize(
    ("mode", "text", "seconds"),
    [
        ("start", "1.5", 1.5),
        ("start", "12:35:24", 0.583953692),
        ("utc", "12:36:23.5", 60.083953692),
        ("local", "07:35:24", 0.583953692),
    ],
)
def test_a_time_that_a_user_enters(in_new_york, mode, text, seconds):
    assert Clock(START, mode).seconds(text) == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize("text", ["noon", "25:00:00", "1:2:3:4"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match=r".+"):
        Clock(START).seconds(text)


def test_the_key_shows_other_times_on_every_screen():
    """A link went down at 12:35:23.416 UTC, 0.663 s after the start."""
    taps = sorted((DATA / "whole_leafspine" / "r03_link_down_reroute").iterdir())
    first, utc, evidence, hops, local, again = each(
        taps, [], ["T"], ["enter"], ["3"], ["1", "T"], ["T"], look=text_of, start="diagnosis"
    )
    assert any("0.663" in line and "link-down" in line for line in first)
    assert any("12:35:23.416" in line and "link-down" in line for line in utc)
    assert "2026-11-21 UTC" in utc[0] and "UTC" not in first[0]
    assert any("FROM UTC" in line for line in utc)
    assert any("╵12:35:2" in line for line in evidence)
    assert any("lost from 12:35:23.416 UTC" in line for line in hops)
    assert any("FROM local" in line for line in local)
    assert any("FROM s" in line for line in again)


def test_a_window_around_a_time_of_day():
    taps = sorted((DATA / "whole_leafspine" / "r03_link_down_reroute").glob("leaf1-spine1*"))
    (seen,) = each(taps, ["T", "t", typed("12:35:23.5"), "enter"], look=text_of, start="diagnosis")
    assert " to 12:35:2" in seen[0]
