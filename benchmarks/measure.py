"""What a command costs: wall time, CPU time and peak memory of one child process."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter

ROWS = 50
"""Of the terminal that a terminal UI is started on."""
PATIENCE_S = 10


class CommandFailed(Exception):
    """A measured command ended with an error; the text is what it wrote to stderr."""


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one run; of several runs the median of each."""

    wall: float
    cpu: float
    peak_bytes: int
    output: str = ""

    def less(self, other: Cost) -> Cost:
        """The times without those of `other`."""
        return Cost(self.wall - other.wall, self.cpu - other.cpu, self.peak_bytes)

    def megabytes(self) -> float:
        """The peak of memory."""
        return self.peak_bytes / 1e6


def run(command: Sequence[str], one_core: bool = False, keep_output: bool = False) -> Cost:
    """Run `command` to its end, on one core when asked; its output is dropped unless kept.

    The caller must be a small process: Linux counts the memory of the process that
    spawned a child into the child's peak (ru_maxrss survives execve).
    """
    core = min(os.sched_getaffinity(0))
    arguments = ["taskset", "--cpu-list", str(core), *command] if one_core else list(command)
    with TemporaryFile("w+") as output, TemporaryFile("w+") as words:
        start = perf_counter()
        child = subprocess.Popen(
            arguments, stdout=output if keep_output else subprocess.DEVNULL, stderr=words
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        words.seek(0)
        if child.returncode:
            reason = words.read().strip()
            raise CommandFailed(f"{' '.join(command)}: exit {child.returncode}: {reason}")
        cpu = usage.ru_utime + usage.ru_stime
        return Cost(wall, cpu, usage.ru_maxrss * 1024, output.read())


def start_up(command: Sequence[str]) -> tuple[float, Cost]:
    """Run the terminal UI on a terminal of its own until flows fill half of its screen 2.

    Result: seconds until the first paint, and the cost until flows are seen.
    """
    began, first, seen = perf_counter(), 0.0, b""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, 160, 0, 0))
    try:
        while len(re.findall(rb"0x[0-9a-f]{6}", seen)) <= ROWS // 2:
            if not select.select([terminal], [], [], PATIENCE_S)[0]:
                raise CommandFailed(f"{' '.join(command)}: no flows are seen")
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                raise CommandFailed(f"{' '.join(command)}: {seen.decode().strip()}") from None
            wall = perf_counter() - began
            if not first and b"QPs" in seen:
                first = wall
                os.write(terminal, b"2")
        process = Path(f"/proc/{child}")
        (peak_kib,) = re.findall(r"VmHWM:\s+(\d+)", (process / "status").read_text())
        tasks = process.glob("task/*/schedstat")
        cpu = sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    return first, Cost(wall, cpu, int(peak_kib) * 1024)


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        statistics.median(c.wall for c in costs),
        statistics.median(c.cpu for c in costs),
        int(statistics.median(c.peak_bytes for c in costs)),
    )


def alternately(
    times: int, first: Callable[[], Cost], second: Callable[[], Cost]
) -> tuple[list[Cost], list[Cost]]:
    """Run both in turn, so that disturbances of the machine affect both equally."""
    pairs = [(first(), second()) for _ in range(times)]
    return [a for a, _ in pairs], [b for _, b in pairs]
