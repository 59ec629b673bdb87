"""The keys of time: a window of a capture, a moment of a live session's past."""

from __future__ import annotations

from ...report.words import human
from ..screens.prompts import TextPrompt
from ..session import windowing
from .session_app import SessionApp


class TimeActions(SessionApp):
    """Moves and scales the window; a live session goes on meanwhile."""

    def window_text(self) -> str:
        """The time window, from the start of the capture; how long it is in a live session."""
        session = self.session
        if session.kind == "live":
            length = session.length_ns
            return "" if length is None else f"last {human.duration(length)}"
        window, whole = session.window, session.whole()
        if window is None or whole is None:
            return ""
        low, high = (human.duration(max(0, t - whole[0])) for t in window)
        return f"{low} to {high}"

    def packet_window(self) -> windowing.Span | None:
        """The time whose packets are shown."""
        session, snapshot = self.session, self.snapshot
        if session.kind != "live":
            return session.window
        if session.looking_at is None:  # else it would move on while it is looked at
            return None
        start = snapshot.start_ns if session.length_ns is not None else 0
        return (start, snapshot.end_ns)

    def action_earlier(self) -> None:
        self._move(-1)

    def action_later(self) -> None:
        self._move(1)

    def action_shorter(self) -> None:
        self._scale(0.5)

    def action_longer(self) -> None:
        self._scale(2.0)

    def _move(self, way: int) -> None:
        session = self.session
        if session.kind == "live":
            if not session.step(way):
                self.notify("Nothing older is kept" if way < 0 else "This is now")
            self.request_snapshot()
            return
        whole, window = session.whole(), session.window
        if whole is not None and window is not None:
            self._set_window(windowing.moved(window, whole, way / 2))
        else:  # the first half to begin with
            self._scale(0.5)

    def _scale(self, by: float) -> None:
        session = self.session
        if session.kind == "live":
            session.scale(by)
            self.request_snapshot()
            return
        whole = session.whole()
        if whole is not None:
            self._set_window(windowing.scaled(session.window, whole, by))

    def _set_window(self, window: windowing.Span | None) -> None:
        self.session.set_window(window)
        self.request_snapshot()

    def action_go_to_time(self) -> None:
        def go(text: str | None) -> None:
            session = self.session
            whole = session.whole()
            if not text or whole is None:
                return
            try:
                seconds = float(text)
                if session.kind == "live":
                    session.look_at(whole[0] + int(seconds * 1e9))
                    self.request_snapshot()
                else:
                    self._set_window(windowing.around(session.window, whole, seconds))
            except (ValueError, OverflowError):
                self.notify(f"{text!r} is no number of seconds", severity="error", markup=False)

        self.push_screen(TextPrompt("go to time, seconds from the start"), go)
