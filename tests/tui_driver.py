"""Drives the real app without a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.widgets import Input

from rocescope.tui.app import RocescopeApp
from rocescope.tui.session import Session

UNHURRIED = {*"123456789", "enter", "escape", "l", "n", "N"}
"""Keys after which workers must have ended before the next one."""


def typed(text):
    """Put text into the prompt at once."""

    def put(app):
        field = app.screen.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    return put


async def settled(app, pilot):
    """Wait until the capture is read, workers have ended and the last snapshot is drawn."""
    for _ in range(3000):
        await pilot.pause(0.005)
        quiet = all(w.is_finished for w in app.workers)
        if quiet and not app.session.running and not app.snapshot.source.running:
            break
    await pilot.pause()


def drive(paths, keys=(), size=(120, 40), look=None, settings=None, session=None):
    """Press keys in an app over these captures; what `look(app)` returns at the end.

    A key may also be a function of the app, called in its place.
    """

    async def run():
        app = RocescopeApp(session or Session.open([str(p) for p in paths]), settings)
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for key in keys:
                if callable(key):
                    key(app)
                else:
                    await pilot.press(key)
                await pilot.pause()
                if key in UNHURRIED or callable(key):
                    await settled(app, pilot)
            await settled(app, pilot)
            return look(app) if look else None

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
