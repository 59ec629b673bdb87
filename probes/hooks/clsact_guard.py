"""A process that takes a clsact filter away when the one that attached it was killed.

A filter is no BPF link: nothing of the kernel's removes it with the process. So a second
process waits for the end of the first, whose only word is that it has removed the filter itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from ...analyzer.errors import CaptureError
from .clsact import ClsactFilter, delete_filter, delete_unused_qdisc
from .namespaces import in_namespace

_REMOVED = b"removed\n"
_OTHERS_TAKE_S = 2.0
"""The filter of the other direction has a guard of its own, on the same qdisc."""


class Guard:
    """Watches over one filter, with the privileges of the moment it is made."""

    def __init__(self, added: ClsactFilter, namespace: str | None) -> None:
        what = json.dumps([namespace, asdict(added)])
        # In a session of its own Ctrl-C and the end of the terminal pass it by.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def end(self) -> None:
        """The filter is gone: nothing is left to do."""
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(_REMOVED, timeout=5)


def main() -> None:
    """Remove the filter when standard input ends without a word."""
    namespace, added = json.loads(sys.argv[1])
    if sys.stdin.buffer.read() != _REMOVED:
        with suppress(CaptureError, OSError):  # it has gone with its interface or namespace
            in_namespace(namespace, lambda: _remove(ClsactFilter(**added)))


def _remove(filter: ClsactFilter) -> None:
    delete_filter(filter)
    ends = time.monotonic() + _OTHERS_TAKE_S
    while filter.made_qdisc and not delete_unused_qdisc(filter.ifindex):
        if time.monotonic() > ends:  # somebody else uses it
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
