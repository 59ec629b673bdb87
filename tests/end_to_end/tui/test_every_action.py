"""Every action of the registry is done by its key, on every screen it belongs to.

One app over real captures of four links; `CHANGES` says what each action must change. An
action that is not in it, or that changes nothing, fails.
"""

from __future__ import annotations

import asyncio

import factories_results as factories
import pytest
import training_jobs
from captures import data
from textual.widgets import Input
from tui_driver import press, settled

from rocescope.tui.actions import ACTIONS, SCREENS
from rocescope.tui.app import RocescopeApp
from rocescope.tui.grid import Grid
from rocescope.tui.host import FlowSelected
from rocescope.tui.screens import packets
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session

TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
MODES = {name: [key] for key, name, _ in SCREENS} | {
    "evidence": ["1", "enter"],
    "ranks": ["upper_k"],
    "jobs": ["upper_j"],
    "aggregation": ["upper_a"],
}
"""Keys that lead to a screen."""


def prompt(app):
    """The dialogue in front, by its class, with the text that stands in it."""
    fields = app.screen.query(Input)
    return type(app.screen).__name__, fields.first().value if fields else None


def grid(name):
    def look(app):
        found = app.screen.query_one(f"#{name}", Grid)
        return found.sorted_by, found.descending, found.cursor

    return look


def own(*names):
    """Attributes of the screen in front."""
    return lambda app: [getattr(app.screen, name) for name in names]


def of_view(*names):
    return lambda app: [getattr(app.view, name) for name in names]


def where(app):
    focused = app.focused.id if app.focused is not None else None
    return app.current_mode, focused


def replaying(app):
    view = app.view.replays.view
    return app.view.replays.running, list(view.strategies), list(view.failed), list(view.sweeps)


def marks(app):
    return dict(app.view.session.marks.flows), dict(app.view.session.marks.packets)


def window(app):
    return app.view.session.window


def copied(app):
    return app.clipboard


def panes(app):
    return len(app.screen.query(".aside"))


CHANGES = {
    "deeper": (where, []),
    "back": (where, ["4"]),
    "filter": (prompt, []),
    "sort": (grid("flows"), []),
    "sort_back": (grid("flows"), []),
    "reverse": (grid("flows"), []),
    "everything": (of_view("everything"), []),
    "path_key": (of_view("path_key"), []),
    "measure": (
        lambda app: (getattr(app.screen, "_measure", None), app.view.fabric_measure),
        [],
    ),
    "rows": (own("_rows"), []),
    "view": (own("_view"), []),
    "matrix": (own("_only_matrix"), []),
    "next_job": (own("_at"), []),
    "previous_job": (own("_at"), []),
    "next_late": (grid("packets"), []),
    "previous_late": (grid("packets"), ["n"]),
    "odd_only": (own("_odd_only", "_late"), []),
    "same_psn": (grid("packets"), []),
    "wireshark": (copied, []),
    "run": (replaying, []),
    "run_packets": (replaying, []),
    "draw_seeds": (replaying, []),
    "fabric": (prompt, []),
    "pick": (lambda app: set(app.view.picked), []),
    "best_seed": (replaying, []),
    "worst_seed": (replaying, []),
    "stop": (lambda app: app.view.replays._stopping.is_set(), [lambda app: long_replay(app)]),
    "production": (prompt, []),
    "mark": (marks, []),
    "comment": (prompt, []),
    "compare": (prompt, ["home", "m", "j", "m"]),
    "freeze": (of_view("frozen"), []),
    "earlier": (window, []),
    "later": (window, []),
    "shorter": (window, []),
    "longer": (window, ["{", "{"]),
    "go_to_time": (prompt, []),
    "times": (of_view("time_mode"), []),
    "larger": (panes, []),
    "smaller": (panes, ["plus"]),
    "export": (prompt, []),
    "copy_filter": (copied, []),
    "copy_command": (copied, []),
    "open_file": (prompt, []),
    "watch": (prompt, []),
    "halt": (lambda app: app.view.session._generation, []),
    "jump": (prompt, []),
    "command_palette": (prompt, []),
    "help": (prompt, []),
    "quit": (lambda app: app._exit, []),
    **{f"go('{mode}')": (where, ["2" if mode != "qps" else "4"]) for _, mode, _ in SCREENS},
    "go('jobs')": (where, ["2"]),
    "go('ranks')": (where, ["2"]),
    "go('aggregation')": (where, ["2"]),
}
"""By action: what must be another afterwards, and the keys before it."""
ELSEWHERE = {
    ("deeper", "ranks"),
    ("run", "aggregation"),
    ("stop", "aggregation"),
    ("same_psn", "packets"),
}
"""They need the logs or the all-reduces of a job (tests/tui/screens/), or taps in series
(tests/tui/test_app.py)."""
LOADED = {"run", "run_packets", "draw_seeds", "best_seed", "worst_seed", "stop"}
"""They begin or end a replay: the next one waits for its end."""


def drawn(app):
    app.view.replays.set_fabric(FABRIC)
    app.view.replays.run(["ecmp", "static"])
    app.view.replays.wait(300)
    app.view.replays.sweep(["linux"], 100)
    app.view.replays.wait(300)
    app.screen.redraw()


def long_replay(app):
    app.view.replays.sweep(["linux"], 1_000_000)


def most_late(snapshot):
    """The flow with the most late packets: each screen has something to show of it."""
    return snapshot.key(int(snapshot.flows.late.argmax()))


def as_before(app):
    """No dialogue, no mark, no window, nothing running; the same flow."""
    while len(app.screen_stack) > 1:
        app.pop_screen()
    app.view.replays.stop()
    app.view.session.marks.flows.clear()
    app.view.session.marks.packets.clear()
    app.view.session.set_window(None)
    app.screen.post_message(FlowSelected(most_late(app.view.snapshot)))
    app.copy_to_clipboard("")
    app.view.frozen = False
    if hasattr(app.screen, "action_smaller"):
        app.screen.action_smaller()


@pytest.fixture
def quick(monkeypatch):
    """Without waiting for tshark, and on a host without a desktop."""
    monkeypatch.setattr(packets, "dissect", lambda *_: [])
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


@pytest.mark.thorough
def test_every_action_changes_what_it_says(quick):
    undone = []
    actions = sorted(ACTIONS, key=lambda action: action.name == "quit")  # the last one

    async def run():
        app = RocescopeApp(Session.open([str(path) for path in TAPS]))
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(app, pilot)
            # Findings, a hop with losses and training jobs: these links have none.
            jobs = [training_jobs.job(), training_jobs.straggling()]
            found = factories.analysis(jobs=jobs)
            app.view.session.diagnosing.judged = Judged.of(found, True)
            app.request_snapshot()
            await settled(app, pilot)
            await press(app, pilot, ["9", drawn])
            for action in actions:
                look, before = CHANGES[action.name]
                for screen in action.screens or ("qps",):
                    if (action.name, screen) in ELSEWHERE:
                        continue
                    await press(app, pilot, [as_before, *MODES[screen], *before])
                    was = look(app)
                    key = action.keys.split(",")[0]
                    await pilot.press(key)
                    await pilot.pause()
                    if action.name not in LOADED:
                        await settled(app, pilot)
                    if look(app) == was:
                        undone.append((action.name, screen, was))

    asyncio.run(run())
    assert not undone


def test_no_action_is_without_a_test():
    assert set(CHANGES) == {action.name for action in ACTIONS}
