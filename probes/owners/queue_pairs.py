"""The queue pairs of this host and their processes, from the probes and the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..sysfs import DEVICES, gid, gid_text
from .ranks import Rank, rank_of, start_ticks
from .resources import QP_STATES, QP_TYPES, Resource, command_of
from .uprobes import CREATED, DESTROYED, QpEvent

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
