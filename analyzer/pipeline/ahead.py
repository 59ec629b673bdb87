"""Compiles the slowest kernels of an analysis ahead, in parallel processes.

Numba compiles one kernel at a time per process. On a fresh machine the kernels of the tracker take
half of the compile time, those of the measures most of the rest. Neither needs packets: rows of
zeros have the same types. The analysis waits at the lock of a kernel for its machine code and does
not compile it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from ...kernels.kernel import worth_compiling_elsewhere
from ..measures.measuring import Measuring
from ..measures.series import DEFAULT_WINDOW_NS
from ..track.batch import IN_ORDER, TrackedBatch
from ..track.state import REQUESTS
from ..track.tracker import FlowTracker, walk
from ..wire.packets import PacketTable

_RC_ACK = 0x11


def tracking() -> None:
    """Call the kernels of the tracker, of its matching, and the kernel for reordered packets."""
    tracker = FlowTracker()
    table = PacketTable.zeros(4)
    table.psn[:] = 0, 2, 1, 3
    tracker.update(table)
    tracker.densities.density(0, REQUESTS)
    several = PacketTable.zeros(4)  # two queue pairs, and two that answer: they are compared
    several.src[:], several.dst[:], several.dest_qp[:] = (0, 0, 1, 1), (1, 1, 0, 0), (1, 2, 3, 4)
    several.opcode[2:] = _RC_ACK
    tracker.update(several)


def measuring() -> None:
    """Call the kernels of the measures that every analysis uses."""
    batch = TrackedBatch(
        PacketTable.zeros(1),
        np.zeros(1, np.int32),
        np.full(1, IN_ORDER, np.uint8),
        np.full(1, -1, np.int32),
        1,
    )
    Measuring(DEFAULT_WINDOW_NS, many_taps=False).measure(batch)


PARTS: tuple[Callable[[], None], ...] = (tracking, measuring)


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile missing kernels in other processes if the host has a second core."""
    with ExitStack() as stack:
        if worth_compiling_elsewhere(walk) and len(os.sched_getaffinity(0)) > 1:
            for part in PARTS:
                with suppress(OSError):  # compiling ahead only saves time
                    process = stack.enter_context(_process(part))
                    stack.callback(process.kill)
        yield


def _process(part: Callable[[], None]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL  # the analysis reports errors
    return subprocess.Popen(
        in_python(call_of(part)), stdin=quiet, stdout=quiet, stderr=quiet, process_group=0
    )


def call_of(part: Callable[[], None]) -> str:
    """A statement that calls `part` in another process."""
    return f"from {part.__module__} import {part.__name__}; {part.__name__}()"


def in_python(code: str) -> list[str]:
    """The command that runs `code` in another Python with the same module search path."""
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]
