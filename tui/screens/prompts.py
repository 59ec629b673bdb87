"""One-line prompts at the bottom of the screen: a comment, a time, a file name."""

from __future__ import annotations

from glob import escape, glob
from os.path import commonprefix, expanduser, isdir
from typing import TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Static


def line_input(value: str, suggester: Suggester | None = None) -> Input:
    field = Input(value, suggester=suggester, select_on_focus=False)
    field.cursor_blink = False
    return field


Answer = TypeVar("Answer")


class Asking(ModalScreen[Answer]):
    """An overlay screen that closes once, however fast keys arrive."""

    _left = False

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Ignore keys that arrive while it closes, such as repeats of a held key."""
        if self._left:
            return AwaitComplete()
        self._left = True
        return super().dismiss(result)


class TextPrompt(Asking[str | None]):
    """Asks for one line."""

    BINDINGS = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, value: str = "") -> None:
        super().__init__()
        self._title, self._value = title, value

    def compose(self) -> ComposeResult:
        yield Static(f" {self._title}: enter accepts, esc cancels", id="prompt-title", markup=False)
        yield line_input(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.accept(event.value)

    def accept(self, value: str) -> None:
        """Close with the line."""
        self.dismiss(value.strip())


class PathPrompt(TextPrompt):
    """Asks for files; Tab completes the last name."""

    BINDINGS = [
        Binding("tab", "complete", show=False, priority=True),
        Binding("escape", "dismiss(None)", show=False),
    ]

    def compose(self) -> ComposeResult:
        title = f" {self._title}: tab completes, enter accepts, esc cancels"
        yield Static(title, id="prompt-title", markup=False)
        yield line_input(self._value, _Paths(case_sensitive=True, use_cache=False))

    def action_complete(self) -> None:
        field = self.query_one(Input)
        before, _, word = field.value.rpartition(" ")
        paths = paths_beginning(word)
        if paths:
            common = commonprefix(paths)
            field.value = f"{before} {common}" if before else common
            field.cursor_position = len(field.value)


class _Paths(Suggester):
    """Suggests the first file that matches the last word."""

    async def get_suggestion(self, value: str) -> str | None:
        word = value.rpartition(" ")[2]
        paths = paths_beginning(word) if word else []
        return value[: len(value) - len(word)] + paths[0] if paths else None


def paths_beginning(word: str) -> list[str]:
    """Files and folders (with a slash) that start with `word`, in the user's notation."""
    home = expanduser("~")
    paths = sorted(glob(f"{escape(expanduser(word))}*"))
    shown = [f"{path}/" if isdir(path) else path for path in paths]
    return [f"~{path[len(home) :]}" if word[:1] == "~" else path for path in shown]
