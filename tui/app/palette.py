"""The command palette: every action of the registry by its help text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from ..actions import ACTIONS, FURTHER, SCREENS, Action, actions_of, shown_key
from ..host import Host

_WORDS, _HERE = 1000.0, 500.0
"""Beyond any score for scattered letters: all words occur; and it works on the screen in front."""


class _Command(NamedTuple):
    action: Action
    screen: str
    """The other screen on which it works; empty if it works on the current one."""

    @property
    def title(self) -> str:
        key = shown_key(self.action)
        if self.screen:
            number = next((k for k, name, _ in (*SCREENS, *FURTHER) if name == self.screen), "")
            key = f"{number} {key}".strip()
        return f"{self.action.help}  ({key})"

    @property
    def text(self) -> str:
        """The text that is searched."""
        return f"{self.action.help} {self.action.label}"


class ActionCommands(Provider):
    """Actions of the current screen; those of other screens if the query matches whole words."""

    def _list_here(self) -> Iterator[_Command]:
        yield from (_Command(action, "") for action in actions_of(self.app.current_mode))

    def _elsewhere(self) -> Iterator[_Command]:
        for action in ACTIONS:
            if action.screens and self.app.current_mode not in action.screens:
                yield _Command(action, action.screens[0])

    async def discover(self) -> Hits:
        for command in self._list_here():
            yield DiscoveryHit(command.title, self._running(command))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in (*self._list_here(), *self._elsewhere()):
            score = matcher.match(command.text)
            if _has_words(command.text, query):
                score += _WORDS + (0 if command.screen else _HERE)
            elif command.screen:
                continue  # nearly every text contains the letters
            if score > 0:
                yield Hit(score, matcher.highlight(command.title), self._running(command))

    def _running(self, command: _Command) -> Callable[[], Awaitable[None]]:
        return partial(self._run, command)

    async def _run(self, command: _Command) -> None:
        app = cast(Host, self.app)
        if command.screen:
            app.go(command.screen)
            app.call_after_refresh(app.run_action, command.action.target)
        else:
            await app.run_action(command.action.target)


def _has_words(text: str, query: str) -> bool:
    """Whether every word of the query is the start of a word of the text."""
    words = text.casefold().replace("(", " ").split()
    return all(any(w.startswith(part) for w in words) for part in query.casefold().split())
