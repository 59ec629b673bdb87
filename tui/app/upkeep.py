"""What is done while no key waits: screens made before their first visit, garbage looked for."""

from __future__ import annotations

import gc
from time import monotonic

from textual import work

from .session_app import SessionApp

QUIET_S = 0.15
"""So long after a key somebody may press another one."""
PREPARE_EVERY_S = 0.1
TIDY_EVERY_S, LONGEST_UNTIDY_S = 1.0, 10.0
"""Garbage is looked for when it is quiet, but not much later."""
THOROUGH_EVERY = 60
"""Of so many times that, once everywhere."""


class Upkeep(SessionApp):
    """Keeps work away from keys."""

    def __init__(self) -> None:
        super().__init__()
        self.key_at = 0.0
        """When the last key came."""
        self._unvisited: list[str] = []
        self._tidied_at, self._tidied = 0.0, 0

    def begin_upkeep(self, screens: list[str]) -> None:
        """Prepare these screens; from now on garbage is looked for here only."""
        self._unvisited = screens
        self._preparing = self.set_interval(PREPARE_EVERY_S, self._prepare)
        gc.disable()
        self.set_interval(TIDY_EVERY_S, self._tidy)

    def end_upkeep(self) -> None:
        """Garbage is looked for as ever."""
        gc.enable()
        gc.unfreeze()

    def _quiet(self) -> bool:
        return monotonic() - self.key_at >= QUIET_S

    def _tidy(self) -> None:
        """Look for garbage: Python does so while lines are made, for a seventh of a paint."""
        now = monotonic()
        if not self._quiet() and now - self._tidied_at < LONGEST_UNTIDY_S:
            return
        self._tidied_at, self._tidied = now, self._tidied + 1
        gc.collect(1 if self._tidied % THOROUGH_EVERY else 2)

    def _prepare(self) -> None:
        """Make one of the screens that were not visited yet: their first visit is quick then."""
        ending = bool(self._batch_count)
        if ending or not len(self.snapshot.flows) or not self._quiet():
            return
        if self._unvisited:
            mode = self._unvisited.pop(0)
            if mode not in self._screen_stacks:
                self._init_mode(mode)
        else:
            self._preparing.stop()
            self._load_the_rest()

    @work(thread=True, group="prepare", exit_on_error=False)
    def _load_the_rest(self) -> None:
        """Load what filters and replays need, which takes a second that no key must wait."""
        from ..screens import filter_prompt  # noqa: F401
        from ..session.replays import replays  # noqa: F401

        # All modules and screens are there. To look through them for garbage takes 130 ms, in
        # which no thread runs, so that is never done: what comes and goes from now on is little.
        gc.freeze()
