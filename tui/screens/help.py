"""All keys, from the registry of actions."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from ..actions import ACTIONS, FURTHER, SCREENS, keys_of
from .prompts import Asking

TWO_COLUMNS = 110
"""From this width on."""
CURSOR = (
    ("↑ ↓ j k", "Up and down"),
    ("pgup pgdn", "A page up and down"),
    ("home end", "To the first and the last row (g and G too)"),
    ("tab", "To the next pane"),
)


class HelpScreen(Asking[None]):
    """Help of every key, those of this screen first."""

    BINDINGS = [Binding("escape,question_mark,q", "dismiss", show=False)]

    def __init__(self, screen: str) -> None:
        super().__init__()
        self._screen = screen

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._tables(self.app.size.width >= TWO_COLUMNS))

    def _tables(self, beside: bool) -> Table:
        """The keys of this screen and of the cursor, and those that work everywhere."""
        everywhere = [(keys_of(a), a.help) for a in ACTIONS if not a.screens]
        keys = [(keys_of(a), a.help) for a in ACTIONS if self._screen in a.screens]
        titles = {name: title for _, name, title in (*SCREENS, *FURTHER)}
        name = titles.get(self._screen, self._screen)
        title = f"On this screen ({name})"
        parts = [(title, keys), ("The cursor", list(CURSOR)), ("Everywhere", everywhere)]
        if beside:
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_row(_table(parts[:2]), _table(parts[2:]))
            return table
        return _table(parts)


def _table(parts: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold", min_width=9)
    for heading, rows in parts:
        if not rows:
            continue
        if table.row_count:
            table.add_row("")
        table.add_row("", Text(heading, "underline"))
        for keys, words in rows:
            table.add_row(keys, words)
    return table
