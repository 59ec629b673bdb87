"""Sources of packets, opened and stopped by keys: files and interfaces."""

from __future__ import annotations

import shlex
from os.path import expanduser
from pathlib import Path

from ...analyzer.errors import RocescopeError
from ..host import Host
from ..screens.prompts import PathPrompt, TextPrompt
from ..session.session import Session


class Sources:
    """Opens and stops captures and probes."""

    def __init__(self, host: Host) -> None:
        self._host, self._view = host, host.view

    def ask_captures(self) -> None:
        """Open captures that the user names."""
        self._host.push_screen(PathPrompt("open captures, separated by spaces"), self._open)

    def _open(self, names: str | None) -> None:
        if names:
            paths = [expanduser(name) for name in _words(names)]
            self._host.change_session(Session.open(paths))

    def ask_interfaces(self) -> None:
        """Capture on interfaces that the user names."""
        self._host.push_screen(
            TextPrompt("capture on interfaces; `eth2 eth3 > FILE` also records to a file"),
            self._watch,
        )

    def _watch(self, text: str | None) -> None:
        if not text:
            return
        names, _, file = text.partition(">")
        interfaces = _words(names)
        try:
            self._host.change_session(live_session(interfaces, file.strip()))
        except RocescopeError as error:
            self._host.notify(str(error), severity="error", markup=False)

    def halt_or_start(self) -> None:
        """Stop or start the probes, or reading the capture."""
        if self._view.session.running:
            self._host.run_worker(self._halt, thread=True, group="halt", exit_on_error=False)
        else:
            self._view.session.start()
            self._host.request_snapshot()

    def _halt(self) -> None:
        """In a thread: the packets in the rings are still read."""
        self._view.session.halt()
        self._host.call_from_thread(self._host.request_snapshot)


def live_session(interfaces: list[str], file: str = "") -> Session:
    """A session on interfaces. CaptureError, UsageError: missing interface or privilege."""
    from ...probes.hooks.interfaces import find_interfaces
    from ...probes.rights import privileges
    from ..session.live import open_live, open_recorded

    privileges.check([name.rpartition(":")[0] for name in interfaces])
    find_interfaces(interfaces, None)
    if file:
        return open_recorded(interfaces, None, Path(expanduser(file)))
    return open_live(interfaces)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
