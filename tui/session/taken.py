"""What one snapshot of a feed leaves to the next: events that were told already, rates, MRC."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from ...analyzer.results.events import Event
from ...analyzer.summary.summarize import Summary
from ...analyzer.track import state as st
from .feeds.feeds import Feed
from .snapshots.mrc_columns import MrcView
from .snapshots.rates import RateMeter


class Taken:
    """Begins anew with each feed: nothing of the one before, shown until then, is of this one."""

    def __init__(self, feed: Feed | None = None) -> None:
        self.feed = feed
        self.rates = RateMeter()
        self.mrc = MrcView()
        self._events: list[Event] = []
        self._cm_events: list[Event] = []

    def update(self, feed: Feed, running: bool, summary: Callable[[Feed], Summary]) -> int:
        """Take what has come since; the engine must stand still. How many events it left out."""
        used = feed.measuring.tracker.state.used
        have, known = int(used[st.USED_EVENTS]), len(self._events)
        if have > known:
            self._events += summary(feed).events_between(known, have)
        if len(feed.measuring.cm.messages) > len(self._cm_events):
            self._cm_events = summary(feed).cm_events()
        self.mrc.update(feed.measuring, running, lambda: summary(feed))
        return int(used[st.OMITTED_EVENTS])

    def events(self) -> tuple[Event, ...]:
        """All of them in order of time."""
        together = self._cm_events + self._events + self.mrc.events
        return tuple(sorted(together, key=attrgetter("time_ns")))
