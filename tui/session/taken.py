"""State between snapshots of a feed: events read so far, rates, MRC."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from ...analyzer.results.events import Event
from ...analyzer.statistics.per_flow import Kept
from ...analyzer.summary.summarize import Summary
from ...analyzer.track import state as st
from .feeds.feeds import Feed
from .snapshots.keeping import kept_events
from .snapshots.mrc_columns import MrcView
from .snapshots.rates import RateMeter


class Taken:
    """One object per feed: nothing is taken over from the previous feed."""

    def __init__(self, feed: Feed | None = None) -> None:
        self.feed = feed
        self.rates = RateMeter()
        self.mrc = MrcView()
        self._events: list[Event] = []
        self._cm_events: list[Event] = []

    def update(self, feed: Feed, running: bool, summary: Callable[[Feed], Summary]) -> int:
        """Take the new events while the engine is paused; returns the number of omitted events."""
        used = feed.measuring.tracker.state.used
        have, known = int(used[st.USED_EVENTS]), len(self._events)
        if have > known:
            self._events += summary(feed).events_between(known, have)
        if len(feed.measuring.cm.messages) > len(self._cm_events):
            self._cm_events = summary(feed).cm_events()
        self.mrc.update(feed.measuring, running, lambda: summary(feed))
        return int(used[st.OMITTED_EVENTS])

    def keep(self, kept: Kept) -> None:
        """Only these flows are left in the feed."""
        self.rates.keep(kept)
        self.mrc = MrcView()
        self._events = list(kept_events(self._events, kept))

    def events(self) -> tuple[Event, ...]:
        """All of them in order of time."""
        together = self._cm_events + self._events + self.mrc.events
        return tuple(sorted(together, key=attrgetter("time_ns")))
