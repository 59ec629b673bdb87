"""What screens and key handlers know of the application."""

from __future__ import annotations

from textual.app import App

from .session.session import Session
from .view_state import ViewState


class Host(App[None]):
    """An application that shows a view."""

    view: ViewState
    key_at: float = 0.0
    """When the last key came, by the monotonic clock."""

    def request_snapshot(self) -> None:
        """Have a new snapshot made."""
        raise NotImplementedError

    def change_session(self, session: Session) -> None:
        """Look at something else."""
        raise NotImplementedError

    def go(self, name: str) -> None:
        """Show a screen; the way back is kept."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the screen in front again."""
        raise NotImplementedError

    def copy(self, text: str) -> None:
        """Put text on the clipboard and say so."""
        self.copy_to_clipboard(text)
        self.notify(text, title="copied", markup=False)
