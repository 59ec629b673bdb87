"""Priority for the threads that empty rings, and for the thread that draws the screens.

Rings overflow, and the user waits for the answer to a key; other threads can wait. A higher
priority needs a privilege (CAP_SYS_NICE), which live commands give up. Threads inherit the
priority of the thread that starts them, and lower it themselves. `allow` sets a limit (which
needs CAP_SYS_RESOURCE) up to which later threads may raise their priority.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

NICE = -10
"""Nine times the processor share of a thread with the default 0: sched(7)."""


def allow() -> None:
    """Allow threads of this process to call `raise_own`; does nothing without the privilege."""
    limit = 20 - NICE  # as getrlimit(2) counts nice values
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NICE, (limit, limit))


def raise_own() -> None:
    """Raise the priority of this thread and of threads that it starts, if allowed."""
    with suppress(OSError):  # of the thread, not of the process: sched(7)
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def lower_own() -> None:
    """Reset the priority of this thread; threads that it has started keep theirs."""
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # a lower priority is always allowed
