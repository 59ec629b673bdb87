"""The command palette: every action of the registry by its help text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from .actions import Action, actions_of, shown_key

if TYPE_CHECKING:
    from .app import RocescopeApp


class ActionCommands(Provider):
    """Actions that work on the screen in front."""

    def _actions(self) -> Iterator[Action]:
        app = cast("RocescopeApp", self.app)
        yield from actions_of(app.current_mode)

    async def discover(self) -> Hits:
        for action in self._actions():
            yield DiscoveryHit(_title(action), partial(self.app.run_action, action.target))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            score = matcher.match(f"{action.help} {action.label}")
            if score > 0:
                yield Hit(
                    score,
                    matcher.highlight(_title(action)),
                    partial(self.app.run_action, action.target),
                )


def _title(action: Action) -> str:
    return f"{action.help}  ({shown_key(action)})"
