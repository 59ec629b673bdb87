"""When a snapshot is made, by whom, and when it is drawn."""

from __future__ import annotations

from time import monotonic

from textual.timer import Timer

from ...analyzer.results.flow import Flow
from ..host import Host
from ..messages import FocusReady, SnapshotReady
from ..session.snapshots.snapshot import Snapshot
from .upkeep import QUIET_S

LONGEST_WAIT_S = 0.6
"""A new snapshot waits until no key has come for a moment, but not for long."""
HURRIED_EVERY_S = 1.0
"""How often there is a new snapshot while packets come faster than they are measured."""
PAINT_S = 0.05
"""A key is painted in this time; a snapshot that comes meanwhile is drawn after it."""
FIRST_EVERY_S = 0.04
"""How often it is asked whether the first packets are there."""


class Snapshots:
    """Has snapshots made in a thread, one at a time, and hands them to the view."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view
        self.waiting: SnapshotReady | None = None
        """Waits for a key to be painted."""
        self.built_at = 0.0
        """When the last one was begun."""
        self._building = False
        self._stale = False
        self._first: Timer | None = None

    def begin(self, refresh_hz: float) -> None:
        """Make the first one, then one at every refresh."""
        self._host.request_snapshot()
        self._host.set_interval(1 / refresh_hz, self.tick)
        self._first = self._host.set_interval(FIRST_EVERY_S, self._wait_for_first)

    def tick(self) -> None:
        """Ask for a snapshot unless keys or probes come first."""
        host, session = self._host, self._view.session
        if not (session.running or self._view.snapshot.source.running):
            return
        now = monotonic()
        waited = now - self.built_at
        typing = now - host.key_at < QUIET_S and waited < LONGEST_WAIT_S
        hurried = session.hurried and waited < HURRIED_EVERY_S
        if not typing and not hurried:
            host.request_snapshot()

    def _wait_for_first(self) -> None:
        """The first packets are shown when they are there; a tick would let them wait."""
        view = self._view
        if self._first is not None and (len(view.snapshot.flows) or not view.session.running):
            self._first.stop()
        if not self._building:
            self._host.request_snapshot()

    def request(self) -> None:
        """Have a new snapshot made, unless one is under way: then once more after it."""
        if self._building:
            self._stale = True
            return
        self._building, self._stale = True, False
        self.built_at = monotonic()
        self._host.run_worker(self._build, thread=True, group="snapshot", exit_on_error=False)

    def _build(self) -> None:
        session = self._view.session
        try:
            snapshot, record = session.snapshot(), session.focus()
            self._view.prepare(snapshot)
        finally:
            self._building = False
        self._host.post_message(SnapshotReady(snapshot, record))

    def arrived(self, message: SnapshotReady) -> None:
        """Show a snapshot, after the last key was painted."""
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
        if not self._view.frozen:
            self.show(message.snapshot, message.record)
        if self._stale:
            self._host.request_snapshot()

    def show(self, snapshot: Snapshot, record: Flow | None = None) -> None:
        """Make a snapshot the current one, with the record of the selected flow, and draw it."""
        view = self._view
        view.snapshot = snapshot
        view.put_record(record)
        self._host.redraw()
        if not view.is_selected(record):  # another flow was selected since, or by drawing
            self.fetch_record()

    def fetch_record(self) -> None:
        """Have the record of the selected flow read."""
        self._host.run_worker(
            self._focus, thread=True, exclusive=True, group="record", exit_on_error=False
        )

    def _focus(self) -> None:
        self._host.post_message(FocusReady(self._view.session.focus()))
