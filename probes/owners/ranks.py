"""The rank of a process in its job, from the environment that its launcher set.

Only the initial environment is visible: a rank that a program sets later
(os.environ, setenv) is not in /proc/PID/environ.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_RANKS = (
    "RANK",  # torchrun and most frameworks
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",  # last: one Slurm task may start a whole torchrun
)
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)
_MOST_ENVIRONMENT_BYTES = 1 << 20
_MOST_DIGITS = 9
_START_FIELD = 22  # of /proc/PID/stat, see proc(5)
_START_SLACK_NS = 50_000_000  # start times count in clock ticks


@dataclass(frozen=True, slots=True)
class Rank:
    """The rank of a process in its job, as far as known."""

    rank: int | None = None
    local_rank: int | None = None
    variable: str | None = None
    """The environment variable of the rank."""
    reason: str | None = None
    """Why the rank is unknown."""


def rank_of(pid: int, seen_ns: int | None = None, proc: str = "/proc") -> Rank:
    """The rank of a process; never raises.

    seen_ns: a time (ns since the Unix epoch) at which the process ran. If the
    process that has this PID now is younger, the rank is unknown.
    """
    started = start_ticks(pid, proc)
    if started is None:
        return Rank(reason="the process has ended")
    if seen_ns is not None and _since_epoch_ns(started) > seen_ns + _START_SLACK_NS:
        return Rank(reason="the process has ended, another one has its number")
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            environment = _parsed(file.read(_MOST_ENVIRONMENT_BYTES))
    except PermissionError:
        return Rank(reason="no permission to read its environment (CAP_SYS_PTRACE)")
    except OSError:
        return Rank(reason="the process has ended")
    if start_ticks(pid, proc) != started:
        return Rank(reason="the process has ended, another one has its number")
    rank, variable = _first_number(environment, _RANKS)
    local_rank, _ = _first_number(environment, _LOCAL_RANKS)
    reason = None if variable else "no launcher has set a rank"
    return Rank(rank, local_rank, variable, reason)


def start_ticks(pid: int, proc: str = "/proc") -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process.

    PID and start time together identify a process.
    """
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            behind_name = file.read().rpartition(b")")[2].split()
        return int(behind_name[_START_FIELD - 3])
    except (OSError, ValueError, IndexError):
        return None


def _since_epoch_ns(ticks: int) -> int:
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_ns + ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def _parsed(environment: bytes) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0"))
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, equals, value in pairs
        if equals
    }


def _first_number(
    environment: dict[str, str], names: tuple[str, ...]
) -> tuple[int | None, str | None]:
    for name in names:
        value = environment.get(name, "")
        if value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
            return int(value), name
    return None, None
