"""Where packets come from, chosen from inside: files, interfaces, and their end."""

from __future__ import annotations

import shlex
from pathlib import Path

from textual import work

from ...analyzer.errors import RocescopeError
from ..screens.prompts import PathPrompt, TextPrompt
from ..session.session import Session
from .session_app import SessionApp


class SourceActions(SessionApp):
    """Opens captures and probes, and stops them."""

    def action_open_file(self) -> None:
        self.push_screen(PathPrompt("open captures, separated by spaces"), self._open)

    def _open(self, names: str | None) -> None:
        if names:
            paths = [str(Path(name).expanduser()) for name in _words(names)]
            self.change_session(Session.open(paths))

    def action_watch(self) -> None:
        self.push_screen(
            TextPrompt("watch interfaces, `eth2 eth3 > FILE` records them"), self._watch
        )

    def _watch(self, text: str | None) -> None:
        if not text:
            return
        names, _, file = text.partition(">")
        interfaces = _words(names)
        try:
            self.change_session(live_session(interfaces, file.strip()))
        except RocescopeError as error:
            self.notify(str(error), severity="error", markup=False)

    def action_halt(self) -> None:
        if self.session.running:
            self._halt()
        else:
            self.session.start()
            self.request_snapshot()

    @work(thread=True, group="halt", exit_on_error=False)
    def _halt(self) -> None:
        """In a thread: what is in the rings is still taken in."""
        self.session.halt()
        self.call_from_thread(self.request_snapshot)


def live_session(interfaces: list[str], file: str = "") -> Session:
    """A session on interfaces. CaptureError or UsageError when they or the rights are missing."""
    from ...probes.hooks.interfaces import find_interfaces
    from ...probes.rights import privileges
    from ..session.feeds.live import open_live
    from ..session.feeds.recording import open_recorded

    privileges.check([name.rpartition(":")[0] for name in interfaces])
    find_interfaces(interfaces, None)
    if file:
        return open_recorded(interfaces, None, Path(file).expanduser())
    return open_live(interfaces)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
