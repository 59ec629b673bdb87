"""The configuration file."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import pytest
from captures import data
from fabric_captures import fabric_links

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.tui import settings
from rocescope.tui.actions import ACTIONS, FURTHER, SCREENS, actions_of, keys_of
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens import base as registry
from rocescope.tui.session.packets import Point
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import FlowKey
from rocescope.tui.settings import Settings, load, settings_path
from rocescope.tui.view_state import ViewState

# The configuration file.

GOOD = """\
theme = "nord"
refresh_hz = 2
[keys]
freeze = "space,f"
[columns]
qps = ["src", "dst", "ranks"]
"""


@pytest.fixture
def read(tmp_path):
    def reading(text):
        file = tmp_path / "tui.toml"
        file.write_text(text)
        return load(file)

    return reading


def test_a_file(read, tmp_path):
    assert read(GOOD) == Settings(
        "nord", 2.0, {"freeze": "space,f"}, {"qps": ["src", "dst", "ranks"]}
    )
    assert load(tmp_path / "none.toml") == read("") == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("theme = ", "tui.toml: Invalid value"),
        ("theme = 7", "tui.toml: .*theme"),
        ("thema = 'nord'", "tui.toml: .*thema"),
        ("[keys]\nfreze = 'f'", "there is no action 'freze'"),
        ("refresh_hz = 100", "refresh_hz must be from 0.2 to 30"),
        ("refresh_hz = nan", "refresh_hz must be from 0.2 to 30"),
        ("[columns]\npaths = ['src']", "columns can be chosen for qps, not for 'paths'"),
        ("[columns]\nqps = ['sorce']", "no column 'sorce'; columns are src, dst"),
    ],
)
def test_mistakes(text, message, read):
    with pytest.raises(UsageError, match=message):
        read(text)


def test_a_user_without_a_home(monkeypatch):
    def homeless(_name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(settings, "user_config_path", homeless)
    assert str(settings_path()) == "/dev/null" and load() == Settings()


# The one registry of actions: complete, without clashes, and what everything else is made of.


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.name)
def test_every_action_can_be_done(action):
    name = f"action_{action.name.partition('(')[0]}"
    if not action.screens:
        assert hasattr(RocescopeApp, name)
    for screen in action.screens:
        if screen in registry.SCREENS:
            module, _, kind = registry.SCREENS[screen].partition(".")
            assert name in dir(getattr(import_module(f"rocescope.tui.screens.{module}"), kind)), (
                screen
            )


@pytest.mark.parametrize("screen", [name for _, name, _ in (*SCREENS, *FURTHER)])
def test_no_key_has_two_meanings(screen):
    keys = [key for action in actions_of(screen) for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))


def test_every_action_has_words_and_keys():
    for action in ACTIONS:
        assert action.help and action.label and keys_of(action)
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)


def test_settings(tmp_path):
    path = tmp_path / "tui.toml"
    assert settings.load(path) == settings.Settings()
    path.write_text('theme = "nord"\n[keys]\nfreeze = "f"\n')
    assert settings.load(path).keys == {"freeze": "f"}
    for text, says in (
        ("[keys]\nfly = 'x'\n", "no action 'fly'"),
        ("theme = 3\n", "theme"),
        ("colour = 1\n", "colour"),
        ("refresh_hz = 0\n", "refresh_hz"),
        ("theme", "tui.toml"),
        ("[columns]\nqps = ['nothing']\n", "no column 'nothing'"),
        ("[columns]\nevents = []\n", "not for 'events'"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=says):
            settings.load(path)


def key_table():
    """The keys as docs/tui.md shows them."""
    titles = {name: title for _, name, title in (*SCREENS, *FURTHER)} | {"evidence": "Evidence"}
    lines = ["| key | action | what it does | where |", "|---|---|---|---|"]
    for action in ACTIONS:
        keys = " ".join(f"`{key}`" for key in keys_of(action).split())
        where = ", ".join(titles[name] for name in action.screens) or "everywhere"
        lines.append(f"| {keys} | `{action.name}` | {action.help} | {where} |")
    return "\n".join(lines)


def test_the_documentation_lists_every_key(checkout):
    assert key_table() in (checkout / "docs" / "tui.md").read_text()


# What is shown, without a terminal.

I03 = str(data("i03_write_reorder5_AtoB"))


@pytest.fixture(scope="module")
def read_view_state():
    session = Session.open([I03])
    session.start()
    while session.running:
        time.sleep(0.01)
    yield session
    session.close()


@pytest.fixture
def view(read_view_state):
    read_view_state.selected = None
    read_view_state.set_filter("")
    view = ViewState(read_view_state)
    view.snapshot = read_view_state.snapshot()
    return view


def test_it_loads_no_textual():
    code = "import rocescope.tui.view_state, sys; assert 'textual' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_flows_without_data_only_if_asked_for(view):
    assert view.visible_count == 4
    view.everything = True
    assert view.visible_count == 8


def test_a_record_counts_for_its_own_flow_alone(view):
    first, other = (view.snapshot.key(int(f)) for f in view.shown_flows()[:2])
    assert view.select(first) and not view.select(first)
    record = view.session.focus(first)
    assert view.put_record(record) and not view.put_record(record)
    assert view.record is record
    view.select(other)
    assert view.record is None


def test_the_cursor_moves_to_the_busiest_flow_that_passes(view):
    chosen = view.snapshot.key(int(view.shown_flows()[0]))
    view.select(chosen, by_user=True)
    assert view.chosen and not view.select_passing()
    view.session.set_filter("qp == 0x2d")
    assert view.select_passing()
    assert view.session.selected.qp == 0x2D
    view.session.set_filter("qp == 1")
    assert not view.select_passing()  # none passes


def test_source_ports_alone_are_one_path_key(view):
    assert not view.next_path_key() and view.path_key == "entropy"
    view.path_key = "srv6"  # of a capture looked at before
    assert view.paths() is view.snapshot.paths["entropy"]


def test_paths_are_taps_where_some_are_parallel_until_the_user_picks_another_key(view):
    paths = dict(view.snapshot.paths, tap=view.snapshot.paths["entropy"])
    series = replace(view.snapshot, paths=paths)
    judged = replace(series.judged, parallel_taps=[("up1", "up2")])
    for snapshot, following in ((series, "tap"), (replace(series, judged=judged), "entropy")):
        view.snapshot, view.path_key = snapshot, ""
        view.next_path_key()
        assert view.path_key == following


def test_links_are_computed_before_a_snapshot_is_drawn(view):
    computed = []
    placed = SimpleNamespace(path_columns=computed.append)
    view._replays = SimpleNamespace(placed={"ecmp": placed}, stop=lambda: None)
    view.prepare(view.snapshot)
    assert not computed
    view.path_key = "fabric"
    view.prepare(view.snapshot)
    assert computed == [view.snapshot]
    view.frozen = True  # another snapshot is drawn
    view.prepare(view.snapshot)
    assert len(computed) == 1


def test_what_packets_are_wanted_is_said_once(view):
    view.wanted_packet = Point(7)
    assert (view.take_packet(), view.take_packet()) == (Point(7), None)
    assert view.take_late() is None


def test_another_session_begins_anew(view):
    view.select(FlowKey("10.0.0.1", "10.0.0.2", 0x2D), by_user=True)
    view.frozen, view.strategy, view.picked = True, "ecmp", {"ecmp"}
    view.path_key = "tap"
    other = Session.open([I03])
    ended = []
    view.session.on_close(lambda: ended.append(1))
    view.begin(other)
    assert ended and view.session is other and not len(view.snapshot.flows)
    assert not (view.frozen or view.chosen or view.strategy or view.picked)
    assert view.path_key == "tap"


def test_replays_use_the_fabric_of_the_session():
    fabric = replace(fabric_links(), spec="leaf-spine:leaves=2,spines=4,hosts=2")
    session = Session.open([I03], AnalyzeOptions(fabric=fabric))
    request = ViewState(session).replays.request
    assert (request.fabric, request.map) == (fabric.spec, "exact")
    session.close()
