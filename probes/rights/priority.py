"""Threads that empty rings, and the one that draws, run before others of the process.

Rings overflow and somebody waits for a key's answer; everything else has time. Raising a
priority takes a privilege (CAP_SYS_NICE), which live commands give up. Threads that a raised
one starts are raised too, and lower themselves. `allow` asks for a limit (which takes
CAP_SYS_RESOURCE) up to which threads that are started later may raise their own.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

NICE = -10
"""Nine times the share of a processor that a thread of the usual 0 gets beside it: sched(7)."""


def allow() -> None:
    """Let threads of this process call `raise_own`; nothing happens without the privilege."""
    limit = 20 - NICE  # as getrlimit(2) counts nice values
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (limit, limit))


def raise_own() -> None:
    """Let this thread, and those that it starts, run before others, where that is allowed."""
    with suppress(OSError):  # of the thread, not of the process: sched(7)
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def lower_own() -> None:
    """Take back what this thread was given; those that it started before keep it."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # to run later is always allowed
