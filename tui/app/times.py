"""The keys for time: the window of a capture, the past of a live session."""

from __future__ import annotations

from ..host import Host
from ..screens.prompts import TextPrompt
from ..session import windowing


class Times:
    """Moves and scales the window; a live session continues to capture."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view

    def move(self, way: int) -> None:
        """Half a window back (-1) or forward (1)."""
        session = self._view.session
        if session.kind == "live":
            if not session.step(way):
                self._host.notify(
                    "No older data is kept" if way < 0 else "The screen is live already"
                )
            self._host.request_snapshot()
            return
        full, window = session.whole(), session.window
        if full is not None and window is not None:
            self._set_window(windowing.moved(window, full, way / 2))
        else:  # the first half to begin with
            self.scale(0.5)

    def scale(self, by: float) -> None:
        """Make the window longer or shorter."""
        session = self._view.session
        if session.kind == "live":
            session.scale(by)
            self._host.request_snapshot()
            return
        full = session.whole()
        if full is not None:
            self._set_window(windowing.scaled(session.window, full, by))

    def _set_window(self, window: windowing.Span | None) -> None:
        self._view.session.set_window(window)
        self._host.request_snapshot()

    def ask(self) -> None:
        """Go to a time that the user enters."""

        def go(text: str | None) -> None:
            session = self._view.session
            full = session.whole()
            if not text or full is None:
                return
            try:
                seconds = float(text)
                if session.kind == "live":
                    session.look_at(full[0] + int(seconds * 1e9))
                    self._host.request_snapshot()
                else:
                    self._set_window(windowing.around(session.window, full, seconds))
            except (ValueError, OverflowError):
                self._host.notify(
                    f"{text!r} is not a number of seconds", severity="error", markup=False
                )

        self._host.push_screen(TextPrompt("go to time, seconds from the start"), go)
