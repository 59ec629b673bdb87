"""The queue pairs of this host, their processes and ranks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..sysfs import DEVICES, gid, gid_text
from .uprobes import CREATED, DESTROYED, QpEvent

# The rank of a process in its job, from the environment that its launcher set.
#
# Only the initial environment is visible: a rank that a program sets later
# (os.environ, setenv) is not in /proc/PID/environ.

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


# The kernel's table of queue pairs, read by iproute2's `rdma` tool.
#
# It contains every queue pair, including those older than the probes, and the process
# that created it; it has no addresses (rdma-resource(8)).

_TIMEOUT_S = 10
_TOOL_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin:/opt/mellanox/iproute2/sbin"

QP_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_INI", 10: "XRC_TGT", 0xFF: "DRIVER"}
QP_STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
"""enum ibv_qp_type and enum ibv_qp_state of infiniband/verbs.h, in rdma-resource(8)'s words."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of the table."""

    device: str
    port: int | None
    local_qp: int
    remote_qp: int | None
    """None for datagrams and for queue pairs that are not connected."""
    type: str
    state: str
    rq_psn: int | None
    """The PSN expected next, at the time of the query."""
    sq_psn: int | None
    """The PSN sent next, at the time of the query."""
    pid: int | None
    """None for queue pairs of the kernel (MADs, NVMe over RDMA, NFS)."""
    command: str


def command_of(pid: int, proc: str = "/proc") -> str:
    """The name of a process; empty if it has ended."""
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def rdma_tool() -> str | None:
    """The path of the `rdma` tool."""
    return shutil.which("rdma") or shutil.which("rdma", path=_TOOL_FOLDERS)


def read_resources() -> tuple[list[Resource], str | None]:
    """The table of this network namespace's devices, and the reason if it is not available."""
    tool = rdma_tool()
    if tool is None:
        return [], "the rdma tool is not installed (package iproute2)"
    try:
        done = subprocess.run(
            [tool, "-j", "resource", "show", "qp"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{tool} does not run: {error}"
    if done.returncode:
        what = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        if "NETLINK_RDMA" in what:
            return [], "the kernel has no NETLINK_RDMA: its RDMA modules are not loaded"
        return [], f"rdma resource show: {what}"
    return parse_resources(done.stdout)


def parse_resources(text: str) -> tuple[list[Resource], str | None]:
    """Rows of `rdma -j resource show qp`; invalid rows are omitted and counted."""
    try:
        rows = json.loads(text or "[]")
    except json.JSONDecodeError:
        return [], "rdma resource show: unknown output, iproute2 may be too old"
    found = [_resource(row) for row in rows] if isinstance(rows, list) else [None]
    bad = found.count(None)
    reason = f"rdma resource show: {bad} rows could not be parsed" if bad else None
    return [row for row in found if row is not None], reason


def _resource(row: Any) -> Resource | None:
    if not isinstance(row, dict):
        return None
    device, local_qp = row.get("ifname"), _number(row, "lqpn")
    if not isinstance(device, str) or local_qp is None:
        return None
    return Resource(
        device=device,
        port=_number(row, "port"),
        local_qp=local_qp,
        remote_qp=_number(row, "rqpn"),
        type=str(row.get("type", "?")),
        state=str(row.get("state", "?")),
        rq_psn=_number(row, "rq-psn"),
        sq_psn=_number(row, "sq-psn"),
        pid=_number(row, "pid"),
        command=str(row.get("comm", "")).strip("[]"),
    )


def _number(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# enum ibv_qp_attr_mask.
_STATE, _AV, _PATH_MTU = 1 << 0, 1 << 7, 1 << 8
_RQ_PSN, _SQ_PSN, _DEST_QPN = 1 << 12, 1 << 16, 1 << 20

MAX_DESTROYED = 65_536


@dataclass(frozen=True, slots=True)
class QueuePair:
    """One queue pair of this host. None: unknown."""

    local_qp: int
    pid: int
    command: str
    rank: Rank
    device: str | None
    type: str | None = None
    state: str | None = None
    port: int | None = None
    local_gid: str | None = None
    remote_qp: int | None = None
    remote_gid: str | None = None
    rq_psn: int | None = None
    sq_psn: int | None = None
    path_mtu: int | None = None
    """Bytes."""
    created_ns: int | None = None
    """None: it was created before the probes were attached."""
    destroyed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    start_ticks: int | None
    command: str
    rank: Rank


class QueuePairs:
    """Every queue pair seen so far, including the latest destroyed ones."""

    def __init__(self, sysfs: Path = DEVICES, proc: str = "/proc") -> None:
        self._sysfs = sysfs
        self._proc = proc
        self._living: dict[tuple[int, str | None, int], QueuePair] = {}
        self._destroyed: list[QueuePair] = []
        self._processes: dict[int, _Process] = {}
        self._changed: list[QueuePair] = []

    def __iter__(self) -> Iterator[QueuePair]:
        yield from self._living.values()
        yield from self._destroyed

    def __len__(self) -> int:
        return len(self._living) + len(self._destroyed)

    def changes(self) -> list[QueuePair]:
        """New states of queue pairs since the last call, oldest first."""
        changed, self._changed = self._changed, []
        return changed

    def note(self, events: Iterable[QpEvent]) -> None:
        """Process calls of libibverbs, in order."""
        for event in events:
            key = (event.pid, event.device or None, event.local_qp)
            if event.kind == DESTROYED:
                self._end(key, event.time_ns)
                continue
            if event.kind == CREATED:
                self._end(key, event.time_ns)
            known = self._living.get(key)
            if known is None:
                process = self._process(event.pid, event.command, event.time_ns)
                known = QueuePair(
                    local_qp=event.local_qp,
                    pid=event.pid,
                    command=process.command,
                    rank=process.rank,
                    device=event.device or None,
                    type=QP_TYPES.get(event.type),
                    created_ns=event.time_ns if event.kind == CREATED else None,
                )
            self._put(key, self._modified(known, event))

    def merge(self, resources: Iterable[Resource], now_ns: int) -> None:
        """Process the kernel's table of queue pairs, which includes those older than the probes."""
        for row in resources:
            if row.pid is None:  # queue pairs of the kernel
                continue
            key = (row.pid, row.device, row.local_qp)
            process = self._process(row.pid, row.command, now_ns)
            known = self._living.get(key) or QueuePair(
                local_qp=row.local_qp,
                pid=row.pid,
                command=process.command,
                rank=process.rank,
                device=row.device,
            )
            remote_qp = row.remote_qp if known.remote_qp is None else known.remote_qp
            self._put(key, replace(known, type=row.type, state=row.state, remote_qp=remote_qp))

    def bury(self, now_ns: int) -> None:
        """End the queue pairs of ended processes: a killed process does not call ibv_destroy_qp."""
        for key, pair in list(self._living.items()):
            process = self._processes.get(pair.pid)
            started = None if process is None else process.start_ticks
            now = start_ticks(pair.pid, self._proc)
            if now is None or (started is not None and now != started):
                self._end(key, now_ns)
        living = {pid for pid, _, _ in self._living}
        self._processes = {pid: p for pid, p in self._processes.items() if pid in living}

    def _modified(self, pair: QueuePair, event: QpEvent) -> QueuePair:
        mask = event.mask
        if mask & _STATE and event.state < len(QP_STATES):
            pair = replace(pair, state=QP_STATES[event.state])
        if mask & _DEST_QPN:
            pair = replace(pair, remote_qp=event.remote_qp)
        if mask & _RQ_PSN:
            pair = replace(pair, rq_psn=event.rq_psn)
        if mask & _SQ_PSN:
            pair = replace(pair, sq_psn=event.sq_psn)
        if mask & _PATH_MTU and 1 <= event.path_mtu <= 5:
            pair = replace(pair, path_mtu=128 << event.path_mtu)
        if mask & _AV and event.remote_gid is not None:
            device = event.device
            pair = replace(
                pair,
                remote_gid=gid_text(event.remote_gid),
                port=event.port,
                local_gid=gid(device, event.port, event.gid_index, self._sysfs) if device else None,
            )
        return pair

    def _put(self, key: tuple[int, str | None, int], pair: QueuePair) -> None:
        if self._living.get(key) != pair:
            self._living[key] = pair
            self._changed.append(pair)

    def _end(self, key: tuple[int, str | None, int], now_ns: int) -> None:
        pair = self._living.pop(key, None)
        if pair is not None:
            self._destroyed.append(replace(pair, destroyed_ns=now_ns))
            self._changed.append(self._destroyed[-1])
            del self._destroyed[:-MAX_DESTROYED]

    def _process(self, pid: int, command: str, seen_ns: int) -> _Process:
        """The process that ran at `seen_ns`; `command` is its name according to the probe."""
        started = start_ticks(pid, self._proc)
        known = self._processes.get(pid)
        if known is not None and started in (known.start_ticks, None):
            return known
        if known is not None and known.start_ticks is not None:
            for key in [key for key in self._living if key[0] == pid]:
                self._end(key, seen_ns)  # the PID belonged to another process
        rank = rank_of(pid, seen_ns, self._proc)
        # A probe reads the name of the thread.
        process = _Process(started, command_of(pid, self._proc) or command, rank)
        self._processes[pid] = process
        return process
