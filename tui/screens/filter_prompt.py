"""The filter prompt at the bottom of the screen, with completion and error messages."""

from __future__ import annotations

import re

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.suggester import Suggester
from textual.widgets import Input, Static

from ...analyzer.errors import UsageError
from ...analyzer.filtering.compiler import Filter
from ...analyzer.filtering.fields import FIELDS
from ..session.flow_filter import FLOW_FIELDS, FlowFilter, needs_packets
from .prompts import TextPrompt, line_input

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
