"""Jump mode: each pane and each screen has a letter that leads to it."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import Label

from .prompts import Asking

LETTERS = "asdfghjkl"


class JumpScreen(Asking[Widget | None]):
    """Letters over the panes that can have the focus."""

    BINDINGS = [Binding("escape,ctrl+o", "dismiss(None)", show=False)]

    def __init__(self, parts: list[Widget]) -> None:
        super().__init__()
        self._parts = dict(zip(LETTERS, parts, strict=False))

    def compose(self) -> ComposeResult:
        for letter, part in self._parts.items():
            label = Label(Text(f" {letter} ", "bold reverse"), classes="jump")
            label.styles.offset = (part.region.x + 1, part.region.y)
            yield label

    def on_key(self, event: events.Key) -> None:
        if event.key in self._parts:
            event.stop()
            self.dismiss(self._parts[event.key])
        elif event.key.isdigit() and not self._left:
            self.dismiss(None)
            self.app.simulate_key(event.key)
