"""Overlays of all screens: prompts, the filter, jump mode, help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import escape, glob
from os.path import commonprefix, expanduser, isdir
from typing import TypeVar

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from ...analyzer.errors import UsageError
from ...analyzer.filtering.compiler import Filter
from ...analyzer.filtering.fields import FIELDS
from ..actions import ACTIONS, FURTHER, SCREENS, keys_of
from ..session.flow_filter import FLOW_FIELDS, FlowFilter, needs_packets


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


# The filter prompt at the bottom of the screen, with completion and error messages.

_LAST_WORD = re.compile(r"[\w.]+$")


def field_meanings() -> dict[str, str]:
    """Every field name of filters: flow fields first, then packet fields."""
    meanings = {name: f"{field.meaning} (flow)" for name, field in FLOW_FIELDS.items()}
    for name, field in FIELDS.items():
        meanings.setdefault(name, field.meaning)
    return meanings


def completions(text: str) -> list[str]:
    """Field names that complete the last word of `text`."""
    match = _LAST_WORD.search(text)
    if not match:
        return []
    word = match[0].lower()
    return [name for name in field_meanings() if name.startswith(word) and name != word]


def mistake(text: str) -> str:
    """The error message of a filter; empty if it is valid."""
    try:
        if not text.strip():
            return ""
        if needs_packets(text):
            Filter(text)
        else:
            FlowFilter(text)
    except UsageError as error:
        return str(error).removeprefix("filter: ")
    return ""


class _Names(Suggester):
    """Completes the last word."""

    async def get_suggestion(self, value: str) -> str | None:
        names = completions(value)
        match = _LAST_WORD.search(value)
        return value[: match.start()] + names[0] if names and match else None


class FilterPrompt(TextPrompt):
    """Asks for a filter and shows errors while the user types."""

    BINDINGS = [
        Binding("tab", "complete", show=False, priority=True),
        Binding("escape", "dismiss(None)", show=False),
    ]

    def __init__(self, value: str = "") -> None:
        super().__init__("filter, tab completes", value)

    def compose(self) -> ComposeResult:
        yield Static(id="prompt-title")
        yield line_input(self._value, _Names(case_sensitive=False))

    def on_mount(self) -> None:
        self._explain(self._value)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._explain(event.value)

    def action_complete(self) -> None:
        field = self.query_one(Input)
        names = completions(field.value)
        match = _LAST_WORD.search(field.value)
        if names and match:
            field.value = field.value[: match.start()] + names[0] + " "
            field.cursor_position = len(field.value)

    def accept(self, value: str) -> None:
        """Close with the filter if it is valid."""
        wrong = mistake(value)
        if wrong:
            self.query_one("#prompt-title", Static).update(Text(f" ● {wrong}", "bold red"))
            return
        super().accept(value)

    def _explain(self, value: str) -> None:
        names = completions(value)
        text = Text(" ")
        if names:
            meanings = field_meanings()
            text.append(f"{names[0]}", "bold")
            text.append(f" {meanings[names[0]]}")
            for name in names[1:8]:
                text.append(f"   {name}", "dim")
        elif value.strip() and mistake(value):
            text.append(f"▲ {mistake(value)}", "yellow")
        elif value.strip():
            reread = needs_packets(value)
            what = "packets: reads the capture again" if reread else "flows"
            text.append(f"✓ filters {what}", "green")
        else:
            text.append(
                "late > 1%  cnps > 0  src == 10.0.1.0/24  or part of an address; tab completes",
                "dim",
            )
        text.truncate(max(20, self.app.size.width - 1), overflow="ellipsis")
        self.query_one("#prompt-title", Static).update(text)


# Jump mode: each pane and each screen has a letter that leads to it.

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


# All keys, from the registry of actions.

TWO_COLUMNS = 110
"""From this width on."""
CURSOR = (
    ("↑ ↓ j k", "Up and down"),
    ("← → h l", "To the next link of a switch, on the map of the fabric"),
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
