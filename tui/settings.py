"""Settings of the terminal UI: keys, columns, theme and its colours.

theme = "rocescope-light"    # or "nord", "gruvbox", ...
refresh_hz = 4

[keys]            # names of actions, see docs/tui.md
freeze = "space,f"

[columns]
qps = ["src", "dst", "qp", "rate", "width", "spray", "late"]
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import msgspec
from platformdirs import user_config_path
from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.theme import Theme

from ..analyzer.errors import UsageError
from ..analyzer.results.base import facts_of
from ..analyzer.results.flow import Flow
from .actions import ACTIONS
from .grid import GridColumn
from .session.snapshot import MRC_FACTS

# The colours: blues and greys, one warm tone for problems.

LIGHT = Theme(
    name="rocescope-light",
    primary="#1f6fb2",
    secondary="#2f8f6b",
    accent="#8a5a00",
    warning="#a85b00",
    error="#b3202c",
    success="#2e7d32",
    foreground="#1c232b",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#dde4eb",
    dark=False,
)
THEME = Theme(
    name="rocescope",
    primary="#5aa9e6",
    secondary="#7fc8a9",
    accent="#f2c572",
    warning="#f0a35e",
    error="#ef5f6b",
    success="#7bc47f",
    foreground="#d7dde5",
    background="#10141a",
    surface="#161b22",
    panel="#222b36",
    dark=True,
)


def named_colours(theme: Theme) -> TerminalTheme:
    """What the named colours of texts (red, yellow, cyan) are in a theme of ours."""
    names = (theme.error, theme.success, theme.warning, theme.primary, theme.accent, theme.primary)
    colours = [Color.parse(name or theme.primary).rgb for name in names]
    foreground, background, grey = (
        Color.parse(name or theme.primary).rgb
        for name in (theme.foreground, theme.background, theme.panel)
    )
    return TerminalTheme(background, foreground, [grey, *colours, foreground])


# Columns of the table of flows on screen 2.

FEW_BARS, MAX_BARS, MANY_BARS = 8, 16, 64
"""Number of path bars on narrow, medium and wide terminals."""
LONG_LINE = 60
"""Most columns of a sparkline."""

DECLARED = tuple(fact for fact in facts_of(Flow) if fact.short)
"""Counts that are shown as they are."""

COLUMNS = (
    GridColumn("src", "SOURCE", 10, grows=True, ends=True),
    GridColumn("dst", "DESTINATION", 11, grows=True, ends=True),
    GridColumn("qp", "QP", 8),
    GridColumn("state", "STATE", 9),
    GridColumn("transport", "TYPE", 4, priority=9),
    GridColumn("rate", "b/s", 7, True),
    GridColumn("packets", "PACKETS", 8, True, 5),
    GridColumn("bytes", "BYTES", 7, True, 7),
    GridColumn("paths", "PATHS", 5, True, 6),
    GridColumn("width", "WIDTH", 7, True),
    GridColumn("spray", "SPRAY (bar=path)", MAX_BARS, priority=2, grows=True),
    GridColumn("late", "LATE %", 6, True),
    GridColumn("extent", "EXT", 5, True, 4),
    *(GridColumn(fact.key, fact.short, fact.width, True, fact.priority) for fact in DECLARED),
    GridColumn("naks", "NAK", 4, True, 3),
    GridColumn("cnps", "CNP", 5, True, 4),
    GridColumn("ce", "CE %", 6, True, 8),
    GridColumn("activity", "BYTES OVER TIME", 16, priority=10, grows=True, most=LONG_LINE),
)

RANKS = GridColumn("ranks", "RANKS", 9)
"""After the queue pair, where a rank is known."""

MRC_COLUMNS = tuple(
    GridColumn(fact.key, fact.title, fact.width, True, fact.priority) for fact in MRC_FACTS
)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the user; every field has a default."""

    theme: str = "rocescope"
    refresh_hz: float = 4.0
    keys: dict[str, str] = {}
    columns: dict[str, list[str]] = {}


def settings_path() -> Path:
    """The path of the file; an empty one for a user without a home (no HOME, no passwd entry)."""
    try:
        return user_config_path("rocescope") / "tui.toml"
    except RuntimeError:
        return Path(os.devnull)


def load(path: Path | None = None) -> Settings:
    """The user's settings; the defaults without a file. UsageError names the mistake."""
    path = path or settings_path()
    try:
        text = path.read_text()
    except OSError:
        return Settings()
    try:
        settings = msgspec.convert(tomllib.loads(text), Settings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from None
    known = {action.name for action in ACTIONS}
    unknown = sorted(set(settings.keys) - known)
    if unknown:
        raise UsageError(f"{path}: there is no action {unknown[0]!r}; see docs/tui.md")
    _check_columns(path, settings)
    if not 0.2 <= settings.refresh_hz <= 30:
        raise UsageError(f"{path}: refresh_hz must be from 0.2 to 30")
    return settings


def _check_columns(path: Path, settings: Settings) -> None:
    known = [column.key for column in (*COLUMNS, RANKS)]
    for screen, names in settings.columns.items():
        if screen != "qps":
            raise UsageError(f"{path}: columns can be chosen for qps, not for {screen!r}")
        for name in names:
            if name not in known:
                raise UsageError(f"{path}: no column {name!r}; columns are {', '.join(known)}")
