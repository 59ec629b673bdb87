"""The interface of the application for screens, and the messages of workers to it."""

from __future__ import annotations

from textual.app import App
from textual.message import Message

from ..analyzer.results.flow import Flow
from .session.session import Session
from .session.snapshot import FlowKey, Snapshot
from .view_state import ViewState

# Messages from workers to the app. Newer messages replace older ones in the queue.


class Newest(Message, bubble=False):
    """A message that makes older ones of its kind superfluous."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, type(self))


class FocusReady(Newest, bubble=False):
    """The whole record of the flow that was selected when a thread began to read it.

    record: None where no flow was selected or the session has no packet of it.
    """

    def __init__(self, session: Session, key: FlowKey | None, record: Flow | None) -> None:
        super().__init__()
        self.session, self.key, self.record = session, key, record


class SnapshotReady(Newest, bubble=False):
    """A new snapshot was made, and then the whole record of the selected flow."""

    def __init__(self, snapshot: Snapshot, focus: FocusReady) -> None:
        super().__init__()
        self.snapshot, self.focus = snapshot, focus


class DiagnosisReady(Message, bubble=False):
    """The session has another diagnosis."""


class FlowSelected(Newest):
    """The shared cursor moved to another flow.

    by_user: False for a cursor that stays on the first row, whatever flow that is.
    """

    def __init__(self, key: FlowKey, by_user: bool = True) -> None:
        super().__init__()
        self.key, self.by_user = key, by_user


class Host(App[None]):
    """An application that shows a view."""

    view: ViewState
    key_at: float = 0.0
    """Time of the last key, by the monotonic clock."""

    def request_snapshot(self) -> None:
        """Request a new snapshot."""
        raise NotImplementedError

    def change_session(self, session: Session) -> None:
        """Open another session."""
        raise NotImplementedError

    def go(self, name: str) -> None:
        """Show a screen; `back` returns from it."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Redraw the current screen."""
        raise NotImplementedError

    def copy(self, text: str) -> None:
        """Copy text to the clipboard and notify the user."""
        self.copy_to_clipboard(text)
        self.notify(text, title="copied", markup=False)
