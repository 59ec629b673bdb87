"""All keys, made from the registry of actions."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ..actions import ACTIONS, SCREENS, keys_of


class HelpScreen(ModalScreen[None]):
    """What every key does, those of this screen first."""

    BINDINGS = [Binding("escape,question_mark,q", "dismiss", show=False)]

    def __init__(self, screen: str) -> None:
        super().__init__()
        self._screen = screen

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._table())

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        title = dict(SCREENS)[self._screen]
        own = [a for a in ACTIONS if self._screen in a.screens]
        for heading, actions in (
            (f"On this screen ({title})", own),
            ("Everywhere", [a for a in ACTIONS if not a.screens]),
        ):
            table.add_row(Text(heading, "underline"), "")
            for action in actions:
                table.add_row(keys_of(action), action.help)
        table.add_row("↑ ↓ j k pgup pgdn home G", "Move the cursor")
        return table
