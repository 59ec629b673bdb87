"""Work between keys: screens made before their first visit, garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

from ..host import Host

QUIET_S = 0.15
"""Another key is likely within this time after a key."""
PREPARE_EVERY_S = 0.1
TIDY_EVERY_S, LONGEST_UNTIDY_S = 1.0, 10.0
"""Longest delay of a garbage collection that waits for a pause."""
THOROUGH_EVERY = 60
"""Every Nth collection covers all generations."""


class Upkeep:
    """Keeps work away from keys."""

    def __init__(self, host: Host, make_screen: Callable[[str], None]) -> None:
        """make_screen: makes a screen before its first visit."""
        self._host, self._view = host, host.view
        self._make_screen = make_screen
        self._unvisited: list[str] = []
        self._tidied_at, self._tidied = 0.0, 0

    def begin(self, screens: list[str]) -> None:
        """Prepare these screens; from now on garbage is collected here only."""
        self._unvisited = screens
        self._preparing = self._host.set_interval(PREPARE_EVERY_S, self._prepare)
        gc.disable()
        self._host.set_interval(TIDY_EVERY_S, self._tidy)

    def end(self) -> None:
        """Return to Python's own garbage collection."""
        gc.enable()
        gc.unfreeze()

    def _quiet(self) -> bool:
        return monotonic() - self._host.key_at >= QUIET_S

    def _tidy(self) -> None:
        """Collect garbage: Python would do so while lines are made, for a seventh of a paint."""
        now = monotonic()
        if not self._quiet() and now - self._tidied_at < LONGEST_UNTIDY_S:
            return
        self._tidied_at, self._tidied = now, self._tidied + 1
        gc.collect(1 if self._tidied % THOROUGH_EVERY else 2)

    def _prepare(self) -> None:
        """Make one unvisited screen, so that its first visit is quick."""
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
        """Load the modules of filters and replays, which takes a second that no key may wait."""
        from ..screens import filter_prompt  # noqa: F401

        if self._view.session.paths:  # a session without files replays nothing
            from ..session.replays import replays  # noqa: F401

        # All modules and screens are loaded. To collect garbage among them takes 130 ms, in
        # which no thread runs. So they are excluded: objects made from now on are few.
        gc.freeze()
