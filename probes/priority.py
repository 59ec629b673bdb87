"""Threads that empty rings run before others of the process: rings overflow, screens only wait.

Raising a priority takes a privilege. `allow` asks for a limit while it is there, up to
which threads may raise their own later, when it is given up.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

NICE = -5
"""Three times the share of a processor that a thread of the usual 0 gets beside it."""


def allow() -> None:
    """Let threads of this process call `raise_own`; nothing happens without the privilege."""
    limit = 20 - NICE  # as getrlimit(2) counts nice values
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (limit, limit))


def raise_own() -> None:
    """Let this thread, and those that it starts, run before others, where that is allowed."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)  # of the thread, not of all: sched(7)
