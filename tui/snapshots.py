"""When snapshots are made and drawn, and the work between keys."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

from textual.timer import Timer

from ..analyzer.results.diagnosis import Place
from ..report.notes import sentence
from .host import DiagnosisReady, FocusReady, Host, SnapshotReady
from .session.session import Session
from .session.snapshot import Snapshot

# Work between keys: screens made before their first visit, garbage collection.

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
        from .screens import prompts  # noqa: F401

        if self._view.session.paths:  # a session without files replays nothing
            from .session import replays  # noqa: F401

        # All modules and screens are loaded. To collect garbage among them takes 130 ms, in
        # which no thread runs. So they are excluded: objects made from now on are few.
        gc.freeze()


LONGEST_WAIT_S = 0.6
"""A new snapshot waits for a pause between keys, but not for long."""
HURRIED_EVERY_S = 1.0
"""Interval of snapshots while packets arrive faster than they are measured."""
QUIET_EVERY_S = 1.0
"""Interval of snapshots while no packet arrives: rates fall, times and counts of drops continue."""
PAINT_S = 0.05
"""A key is painted within this time; a snapshot that is ready earlier is drawn after it."""
MOST_LINES = 3
"""Lines for new critical findings at one time."""
FIRST_EVERY_S = 0.04
"""How often to check for the first packets."""


class Snapshots:
    """Makes snapshots in a thread, one at a time, and passes them to the view."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view
        self.waiting: SnapshotReady | None = None
        """Waits for a key to be painted."""
        self.built_at = 0.0
        """When the last one was started."""
        self._building = False
        self._stale = False
        self._first: Timer | None = None
        self.judging = False
        """Whether a thread diagnoses the session."""
        self._critical: set[tuple[str, Place]] = set()
        """Critical findings of a live session that were announced."""
        self._announced: Session | None = None
        """This session."""

    def begin(self, refresh_hz: float) -> None:
        """Make the first snapshot, then one at every refresh."""
        self._host.request_snapshot()
        self._host.set_interval(1 / refresh_hz, self.tick)
        self._first = self._host.set_interval(FIRST_EVERY_S, self._wait_for_first)

    def tick(self) -> None:
        """Request a snapshot unless keys or probes have priority."""
        host, session = self._host, self._view.session
        reading = session.running or self._view.snapshot.source.running
        if not (reading or (session.diagnosis_due() and not self.judging)):
            return
        now = monotonic()
        waited = now - self.built_at
        typing = now - host.key_at < QUIET_S and waited < LONGEST_WAIT_S
        hurried = session.hurried and waited < HURRIED_EVERY_S
        quiet = waited < QUIET_EVERY_S and not session.has_news
        if not (typing or hurried or quiet):
            host.request_snapshot()

    def _wait_for_first(self) -> None:
        """Show the first packets at once instead of at the next refresh."""
        view = self._view
        if self._first is not None and (len(view.snapshot.flows) or not view.session.running):
            self._first.stop()
        if not self._building and view.session.has_news:
            self._host.request_snapshot()

    def request(self) -> None:
        """Make a new snapshot; if one is in progress, after it."""
        if self._building:
            self._stale = True
            return
        self._building, self._stale = True, False
        self.built_at = monotonic()
        self._host.run_worker(self._build, thread=True, group="snapshot", exit_on_error=False)

    def _build(self) -> None:
        session = self._view.session
        try:
            snapshot, focus = session.snapshot(), _focus(session)
            self._view.prepare(snapshot)
        except BaseException:
            self._building = False
            raise
        self._host.post_message(SnapshotReady(snapshot, focus))

    def arrived(self, message: SnapshotReady) -> None:
        """Show a snapshot, after the last key was painted."""
        # Not earlier, else the next snapshot could arrive before this one, and be replaced by it.
        self._building = False
        left = PAINT_S - (monotonic() - self._host.key_at)
        if left <= 0 and self.waiting is None:
            self._show(message)
            return
        if self.waiting is None:
            self._host.set_timer(max(left, 0.001), self._show_waiting)
        self.waiting = message

    def _show_waiting(self) -> None:
        message, self.waiting = self.waiting, None
        if message is not None:
            self._show(message)

    def _show(self, message: SnapshotReady) -> None:
        if message.focus.session is self._view.session and not self._view.frozen:
            self.show(message.snapshot, message.focus)
        if self._stale:
            self._host.request_snapshot()
        if not self.judging and self._view.session.diagnosis_due():
            self.judging = True
            self._host.run_worker(self._judge, thread=True, group="diagnosis", exit_on_error=False)

    def _judge(self) -> None:
        try:
            self._view.session.diagnose()
        finally:
            self._host.post_message(DiagnosisReady())

    def judged(self) -> None:
        """Show the new diagnosis."""
        self.judging = False
        self._announce()
        self._host.request_snapshot()

    def _announce(self) -> None:
        """A line and the bell for a new critical finding of a live session."""
        session = self._view.session
        if session.kind != "live":
            return
        critical = [f for f in session.diagnosing.judged.findings if f.severity == "critical"]
        if self._announced is not session:
            self._announced, self._critical = session, set()
        new = [f for f in critical if (f.kind, f.place) not in self._critical]
        # One that goes and comes again is not new.
        self._critical |= {(f.kind, f.place) for f in critical}
        if new:
            self._host.bell()
        for finding in new[:MOST_LINES]:
            onset = datetime.fromtimestamp(finding.from_ns // 10**9, UTC)
            self._host.notify(
                sentence(finding),
                title=f"critical, since {onset:%H:%M:%S} UTC",
                severity="error",
                timeout=20,
                markup=False,
            )

    def show(self, snapshot: Snapshot, focus: FocusReady) -> None:
        """Set the current snapshot and the record of the selected flow, and draw them."""
        view = self._view
        view.snapshot = snapshot
        view.select_first()
        if focus.key == view.session.selected:
            view.put_record(focus.record)
        self._host.redraw()
        # The first flow was selected just now, or another one in the meantime, or by drawing. No
        # later snapshot may come that brings its record.
        if focus.key != view.session.selected:
            self.fetch_record()

    def fetch_record(self) -> None:
        """Read the record of the selected flow in a thread."""
        self._host.run_worker(
            self._fetch, thread=True, exclusive=True, group="record", exit_on_error=False
        )

    def _fetch(self) -> None:
        self._host.post_message(_focus(self._view.session))


def _focus(session: Session) -> FocusReady:
    key = session.selected
    return FocusReady(session, key, session.focus(key))
