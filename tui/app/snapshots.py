"""When snapshots are made and drawn."""

from __future__ import annotations

from time import monotonic

from textual.timer import Timer

from ...analyzer.results.diagnosis import Place
from ...report.words.diagnosis import sentence
from ..host import Host
from ..messages import DiagnosisReady, FocusReady, SnapshotReady
from ..session.session import Session
from ..session.snapshots.snapshot import Snapshot
from .upkeep import QUIET_S

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
            self._host.notify(
                sentence(finding), title="critical", severity="error", timeout=20, markup=False
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
