"""Drives the real app without a terminal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic
from unittest import mock

from textual import _wait
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.widgets import Input

from rocescope.tui import snapshots as upkeep
from rocescope.tui.app import RocescopeApp
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import Snapshot

# Textual looks every 20 ms whether the app is idle; screens here are idle sooner.
_wait.SLEEP_GRANULARITY = 1 / 250
_wait.SLEEP_IDLE = _wait.SLEEP_GRANULARITY / 20

_parse_rules, _parsed = Stylesheet._parse_rules, {}


def _parse_once(stylesheet, *css, **more):
    """Rules of styles, which Textual parses anew for every app: a fifth of the time of a test."""
    key = (*stylesheet._variables.items(), *css, *more.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(stylesheet, *css, **more)
    return _parsed[key]


Stylesheet._parse_rules = _parse_once

SETTLED_S = 300
"""Longer than any machine takes: a test fails after it, and none passes because of it."""
# Textual's own limit, of every key, is 30 s.
Pilot._wait_for_screen.__defaults__ = (SETTLED_S,)

UNHURRIED = {*"1234567890DJ", "enter", "escape", "l", "n", "N"}
"""Keys after which workers must have ended before the next one."""


def typed(text):
    """Put text into the prompt at once."""

    def put(app):
        field = app.screen.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    return put


def _busy(app):
    quiet = all(w.is_finished for w in app.workers)
    ended = not app.view.session.running and not app.view.snapshot.source.running
    drawn = app.snapshots.waiting is None  # a snapshot waits until a key is painted
    judging = app.snapshots.judging or app.view.session.diagnosis_due()
    still = isinstance(app.view.session, Still)
    return not quiet or not drawn or judging or not (ended or still)


def _queued(app):
    """Whether a message, as of a worker that has ended, was not handled or not drawn yet."""
    pumps = [app, *app.screen_stack, *app.screen.walk_children()]
    screen = app.screen
    undrawn = screen._layout_required or screen._scroll_required or screen._dirty_widgets
    later = any(map(_has_messages, pumps))
    return later or undrawn or screen._callbacks


def _has_messages(pump):
    """Whether messages wait, or one is being handled: then nobody waits for the next."""
    queue = pump._message_queue
    handling = pump._running and not queue.ready_event._waiters
    return handling or queue.qsize() or pump._next_callbacks


async def settled(app, pilot):
    """Wait until the capture is read, workers have ended and all that they told is drawn.

    A pause alone does not do: on a busy machine the app seems idle while it waits for a processor.
    What is handled in the pause may begin more work.
    """
    end = monotonic() + SETTLED_S
    calm = False
    while not calm:
        while _busy(app) or _queued(app):
            assert monotonic() < end, f"never settled: {app.view.snapshot.source}, {[*app.workers]}"
            await asyncio.sleep(0.005)
        await pilot.pause()
        calm = not _busy(app) and not _queued(app)


async def until_shown(pilot, condition):
    """Wait until a condition holds; the session may continue."""
    end = monotonic() + SETTLED_S
    await pilot.pause(0.05)
    while not condition():
        assert monotonic() < end, "it did not come"
        await pilot.pause(0.05)


async def press(app, pilot, keys):
    """Press keys; one may also be a function of the app, called in its place."""
    for key in keys:
        if callable(key):
            key(app)
        else:
            await pilot.press(key)
        await pilot.pause()
        if callable(key) or key in UNHURRIED:
            await settled(app, pilot)


def drive(paths, keys=(), size=(120, 40), look=None, settings=None, session=None, start="qps"):
    """Press keys in an app over these captures; what `look(app)` returns at the end.

    A key may also be a function of the app, called in its place. start: the screen before keys.
    Screens are made at their first visit only: making all of them takes longer than most tests.
    Tests with an app of their own have them prepared.
    """

    async def run():
        app = RocescopeApp(session or Session.open([str(p) for p in paths]), settings)
        async with app.run_test(size=size) as pilot:
            if start != app.current_mode:
                app.switch_mode(start)
            await settled(app, pilot)
            await press(app, pilot, keys)
            await settled(app, pilot)
            return look(app) if look else None

    with mock.patch.object(upkeep, "PREPARE_EVERY_S", 3600):
        return asyncio.run(run())


def each(paths, *parts, look, **more):
    """What `look(app)` returns after each of several sequences of keys, in one app."""
    seen = []

    def settle(app):
        pass  # `press` waits after a function

    def note(app):
        seen.append(look(app))

    drive(paths, [key for part in parts for key in (*part, settle, note)], **more)
    return seen


class Still(Session):
    """A session that stands in a state that is hard to reach."""

    def __init__(self, source, seen=None, of=None):
        super().__init__(lambda keep: None, source.name, source.kind)
        self._of = of
        self._still = replace(seen or Snapshot(source), source=source)

    def start(self):
        pass

    def snapshot(self):
        return self._still

    def focus(self, key):
        """The record of a flow, by the session that the snapshot is of."""
        return self._of and self._of.focus(key)


class _One(App[None]):
    def __init__(self, widget):
        super().__init__()
        self.widget = widget

    def compose(self):
        yield self.widget


def in_app(widget, width, look):
    """What `look()` returns while one widget is all there is on a narrow or wide screen."""

    async def run():
        async with _One(widget).run_test(size=(width, 5)) as pilot:
            await pilot.pause()
            return look()

    return asyncio.run(run())


def text_of(app):
    """The screen as lines of text."""
    screen = app.screen
    width, height = app.size
    lines = [[" "] * width for _ in range(height)]
    for y, strip in enumerate(screen._compositor.render_strips()):
        text = strip.text
        lines[y] = text
    return [line if isinstance(line, str) else "".join(line) for line in lines]


def svg_of(app):
    """The screen as a picture."""
    return app.export_screenshot(title="")


def written(path: Path) -> bytes:
    """A file, which must be there."""
    assert path.exists(), path
    return path.read_bytes()
