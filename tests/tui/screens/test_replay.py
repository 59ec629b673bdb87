"""Screen 9: progress, and what it says of pauses."""

from __future__ import annotations

import re
from time import monotonic

import pytest
from captures import data
from msgspec.structs import replace
from textual.widgets import Static
from tui_driver import drive

from rocescope.replay.results import PausedPort, PauseSummary
from rocescope.tui.screens.replay import pause_lines
from rocescope.tui.session.replays import Replays, ReplayView

WORDS = (
    "leaf-spine:leaves=2,spines=1,hosts=4,rate=100G,delay=500ns,uplink_rate=400G "
    "--pattern incast:fan-in=7,message-size=500kB --lossless pfc:xoff=40kB,storm=5us"
)
PORT = PausedPort(
    port="spine1>leaf1", layer="spine-leaf", pauses=3, paused_ns=9000, longest_ns=5000, victims=2
)
SUMMARY = PauseSummary(
    pauses=3,
    paused_ns=9000,
    lost_without_headroom=0,
    victim_flows=2,
    causes=["leaf1>host1"],
    ports=[PORT, replace(PORT, priority="background", longest_ns=7000)],
    deadlocked_runs=0,
    deadlock=[],
)


def replayed(app) -> None:
    app.view.replays.set_words(WORDS)
    app.view.replays.run(["jsq", "ecmp"])
    app.view.replays.wait(300)
    app.screen.redraw()


def test_the_pauses_of_the_strategy_under_the_cursor() -> None:
    seen = []

    def below(app) -> None:
        words = str(app.screen.query_one("#sweeps", Static).render())
        seen.append((app.view.strategy, app.view.replays.view, " ".join(words.split())))

    drive([data("i03_write_reorder5_AtoB")], ["9", replayed, below, "j", below], (80, 24))
    assert [name for name, _, _ in seen] == ["jsq by packet", "ecmp by packet"]
    for name, view, words in seen:
        one = view.strategies[name]
        for line, _ in pause_lines(one.packets.pfc):
            assert f"‖ {one.name}: {line}" in words
        assert "pause storm at " in words and " victim flow" in words
    assert "‖ ecmp" not in seen[0][2] and "‖ jsq" not in seen[1][2]


def test_the_options_are_shown_whole() -> None:
    def below(app) -> str:
        return " ".join(str(app.screen.query_one("#sweeps", Static).render()).split())

    long = WORDS + " --transport congestion=dcqcn,recovery=sack --model ecn=5kB+200kB+1%"
    keys = ["9", lambda app: app.view.replays.set_words(long), lambda app: app.screen.redraw()]
    words = drive([data("i03_write_reorder5_AtoB")], keys, (80, 24), below)
    for part in long.split():
        assert part in words


def test_the_hint_says_whose_fabric_it_is() -> None:
    def hint(app) -> str:
        return str(app.screen.query_one("#strategies").empty)

    given = ["9", lambda app: app.view.replays.set_words(WORDS), lambda app: app.screen.redraw()]
    hints = [drive([data("i03_write_reorder5_AtoB")], keys, look=hint) for keys in (["9"], given)]
    assert "a fabric for these hosts, at the rate of the busiest:" in hints[0]
    assert "on this fabric:\n   leaf-spine:leaves=2,spines=1,hosts=4" in hints[1]


def test_why_the_strategy_under_the_cursor_failed() -> None:
    def failed(app) -> None:
        app.view.replays.set_words(WORDS.replace("xoff=40kB", "xoff=40MB"))
        app.view.replays.run(["jsq"])
        app.view.replays.wait(300)
        app.screen.redraw()

    def below(app) -> str:
        return " ".join(str(app.screen.query_one("#sweeps", Static).render()).split())

    words = drive([data("i03_write_reorder5_AtoB")], ["9", failed], (80, 24), below)
    assert "▲ jsq ▪: PFC: xoff (40,000,000 B) exceeds the shared buffer, " in words
    assert "--lossless pfc:xoff=... or buffer=..." in words


def test_keys_during_a_replay_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replays, "busy", True)
    keys = ["9", lambda app: app.view.replays.set_words(WORDS), "r", "upper_r", "d"]
    told = drive(
        [data("i03_write_reorder5_AtoB")],
        keys,
        look=lambda app: [note.message for note in app._notifications],
    )
    assert told == ["A replay is running; x stops it"] * 3


def test_a_step_without_progress_shows_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading is done, and the engine is being compiled: nothing else changes for a while."""
    monkeypatch.setattr("rocescope.tui.screens.replay.compiling", ["move_packets"])

    def running(app) -> None:
        app.view.replays.view = ReplayView(WORDS, "order", running="ecmp", done=0.1)
        app.screen._step = "ecmp", monotonic() - 75
        app.screen.redraw()

    def told(app) -> str:
        return str(app.screen.query_one("#sweeps", Static).render())

    words = drive([data("i03_write_reorder5_AtoB")], ["9", running], (80, 24), told)
    assert re.search(r"██ +ecmp, 7[5-9] s, compiling \(once per machine\)", words)


def test_other_screens_are_drawn_once_when_a_replay_ends() -> None:
    drawn = []

    def ended(app) -> None:
        screen = app.get_screen_stack("replay")[-1]
        screen._last_progress, screen._drawn = "ecmp, 3 s", None
        redraw = app.screen.redraw

        def counted() -> None:
            drawn.append(1)
            redraw()

        app.screen.redraw = counted
        for _ in range(3):
            screen._while_running()

    drive([data("i03_write_reorder5_AtoB")], ["9", "2", ended], (80, 24))
    assert len(drawn) == 1


def test_ports_victims_storms_losses_and_deadlocks() -> None:
    assert pause_lines(SUMMARY) == [
        ("PFC paused 1 port, the longest pause is 7.00 us at spine1>leaf1; 2 victim flows", "dim")
    ]
    worse = replace(
        SUMMARY,
        victim_flows=None,
        storms=[replace(PORT, storm_ns=4000)],
        lost_without_headroom=1,
        deadlock=["a>b", "b>a"],
    )
    assert [line for line, _ in pause_lines(worse)] == [
        "PFC paused 1 port, the longest pause is 7.00 us at spine1>leaf1; victims are not counted",
        "pause storm at 1 port, first at spine1>leaf1 after 4.00 us",
        "1 packet dropped because the headroom of a port was full",
        "deadlock: a>b waits for b>a waits for a>b",
    ]
    assert pause_lines(replace(SUMMARY, ports=[])) == [("PFC paused no port", "dim")]
