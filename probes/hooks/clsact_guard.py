"""A process that removes a clsact filter after the process that attached it was killed.

A filter is not a BPF link: the kernel does not remove it with the process. So a second process
waits for the end of the first, unless the first reports that it has removed the filter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from ...analyzer.errors import CaptureError
from ..rights.dropping import CLSACT, become_unprivileged
from .clsact import ClsactFilter, delete_filter, delete_unused_qdisc
from .namespaces import in_namespace, privileges_to_enter

_REMOVED = b"removed\n"
_OTHERS_TAKE_S = 60.0
"""Longest wait for the guard of the other direction, whose filter is on the same qdisc: on a busy
machine its process may start seconds later."""


class Guard:
    """Guards one filter, with the privileges that its removal needs."""

    def __init__(self, added: ClsactFilter, namespace: str | None) -> None:
        what = json.dumps([namespace, asdict(added)])
        # Its own session protects it from Ctrl-C and the end of the terminal.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def end(self) -> None:
        """End the guard after the filter was removed."""
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(_REMOVED, timeout=5)


def main() -> None:
    """Remove the filter if standard input ends without a report."""
    namespace, added = json.loads(sys.argv[1])
    become_unprivileged(CLSACT + privileges_to_enter(namespace))
    if sys.stdin.buffer.read() != _REMOVED:
        with suppress(CaptureError, OSError):  # it was removed with its interface or namespace
            in_namespace(namespace, lambda: _remove(ClsactFilter(**added)))


def _remove(filter: ClsactFilter) -> None:
    delete_filter(filter)
    ends = time.monotonic() + _OTHERS_TAKE_S
    while filter.made_qdisc and not delete_unused_qdisc(filter.ifindex):
        if time.monotonic() > ends:  # other programs use it
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
