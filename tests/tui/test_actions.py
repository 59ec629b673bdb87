"""The one registry of actions: complete, without clashes, and what everything else is made of."""

from __future__ import annotations

from importlib import import_module

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.tui import settings
from rocescope.tui.actions import ACTIONS, FURTHER, SCREENS, actions_of, keys_of
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens import base as registry


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.name)
def test_every_action_can_be_done(action):
    name = f"action_{action.name.partition('(')[0]}"
    if not action.screens:
        assert hasattr(RocescopeApp, name)
    for screen in action.screens:
        if screen in registry.SCREENS:
            module = import_module(f"rocescope.tui.screens.{screen}")
            assert name in dir(getattr(module, registry.SCREENS[screen])), screen


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
