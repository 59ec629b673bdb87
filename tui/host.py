"""The interface of the application for screens and key handlers."""

from __future__ import annotations

from textual.app import App

from .session.session import Session
from .view_state import ViewState


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
