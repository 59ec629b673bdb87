"""One line asked for at the bottom of the screen: a comment, a time, a file name."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Static


def line_input(value: str, suggester: Suggester | None = None) -> Input:
    """A line that is typed."""
    field = Input(value, suggester=suggester, select_on_focus=False)
    field.cursor_blink = False
    return field


class TextPrompt(ModalScreen[str | None]):
    """Asks for one line."""

    BINDINGS = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, value: str = "") -> None:
        super().__init__()
        self._title, self._value = title, value

    def compose(self) -> ComposeResult:
        yield Static(f" {self._title}: enter accepts, esc leaves", id="prompt-title", markup=False)
        yield line_input(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.accept(event.value)

    def accept(self, value: str) -> None:
        """Leave with the line."""
        self.dismiss(value.strip())
