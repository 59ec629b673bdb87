"""What a command costs: wall time, CPU time and peak memory of one child process."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from time import perf_counter


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
