"""What is done while no key waits: screens made before their first visit, garbage looked for."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

from ..host import Host

QUIET_S = 0.15
"""So long after a key somebody may press another one."""
PREPARE_EVERY_S = 0.1
TIDY_EVERY_S, LONGEST_UNTIDY_S = 1.0, 10.0
"""Garbage is looked for when it is quiet, but not much later."""
THOROUGH_EVERY = 60
"""Of so many times that, once everywhere."""


class Upkeep:
    """Keeps work away from keys."""

    def __init__(self, host: Host, make_screen: Callable[[str], None]) -> None:
        """make_screen: makes one that was not visited yet."""
        self._host, self._view = host, host.view
        self._make_screen = make_screen
        self._unvisited: list[str] = []
        self._tidied_at, self._tidied = 0.0, 0

    def begin(self, screens: list[str]) -> None:
        """Prepare these screens; from now on garbage is looked for here only."""
        self._unvisited = screens
        self._preparing = self._host.set_interval(PREPARE_EVERY_S, self._prepare)
        gc.disable()
        self._host.set_interval(TIDY_EVERY_S, self._tidy)

    def end(self) -> None:
        """Garbage is looked for as ever."""
        gc.enable()
        gc.unfreeze()

    def _quiet(self) -> bool:
        return monotonic() - self._host.key_at >= QUIET_S

    def _tidy(self) -> None:
        """Look for garbage: Python does so while lines are made, for a seventh of a paint."""
        now = monotonic()
        if not self._quiet() and now - self._tidied_at < LONGEST_UNTIDY_S:
            return
        self._tidied_at, self._tidied = now, self._tidied + 1
        gc.collect(1 if self._tidied % THOROUGH_EVERY else 2)

    def _prepare(self) -> None:
        """Make one of the screens that were not visited yet: their first visit is quick then."""
        if not len(self._view.snapshot.flows) or not self._quiet():
            return
        if self._unvisited:
            self._make_screen(self._unvisited.pop(0))
        else:
            self._preparing.stop()
            self._host.run_worker(
                self._load_the_rest, thread=True, group="prepare", exit_on_error=False
            )

    def _load_the_rest(self) -> None:
        """Load what filters and replays need, which takes a second that no key must wait."""
        from ..screens import filter_prompt  # noqa: F401
        from ..session.replays import replays  # noqa: F401

        # All modules and screens are there. To look through them for garbage takes 130 ms, in
        # which no thread runs, so that is never done: what comes and goes from now on is little.
        gc.freeze()
