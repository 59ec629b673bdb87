"""What the parts of the application know of each other."""

from __future__ import annotations

from textual.app import App

from ..session.session import Session
from ..session.snapshot import Snapshot
from ..session.windowing import Span


class SessionApp(App[None]):
    """An app over one session and its current snapshot."""

    session: Session
    snapshot: Snapshot

    def request_snapshot(self) -> None:
        """Have a new snapshot made."""
        raise NotImplementedError

    def packet_window(self) -> Span | None:
        """The time whose packets are shown."""
        raise NotImplementedError

    def change_session(self, session: Session) -> None:
        """Look at something else."""
        raise NotImplementedError
