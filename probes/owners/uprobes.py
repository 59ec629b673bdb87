"""Calls of processes on queue pairs, seen at the functions of libibverbs."""

from __future__ import annotations

import errno
import os
import platform
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from ...analyzer.errors import CaptureError
from .. import bpf
from ..clock import WallClock
from ..program.compile import known_machine_code, load
from .elf import ElfError, defaults, functions_of, opened
from .libraries import all_libraries, file_key
from .perf import PROG_KPROBE, attach_uprobe

SOURCE = Path(__file__).with_name("owners.bpf.c")

EVENT: Final = np.dtype(
    [
        ("time_ns", "<u8"),
        ("qp", "<u8"),
        ("pid", "<u4"),
        ("kind", "<u4"),
        ("local_qp", "<u4"),
        ("type", "<u4"),
        ("mask", "<u4"),
        ("state", "<u4"),
        ("path_mtu", "<u4"),
        ("rq_psn", "<u4"),
        ("sq_psn", "<u4"),
        ("remote_qp", "<u4"),
        ("remote_gid", "V16"),
        ("command", "S16"),
        ("device", "S64"),
        ("has_gid", "u1"),
        ("port", "u1"),
        ("gid_index", "u1"),
        ("padding", "u1", 5),
    ]
)
"""struct qp_event of owners.bpf.c."""

CREATED, MODIFIED, DESTROYED = 1, 2, 3

_PROBES = (
    ("ibv_create_qp", "create_return", True),
    ("ibv_modify_qp", "modify_entry", False),
    ("ibv_modify_qp", "modify_return", True),
    ("ibv_destroy_qp", "destroy_entry", False),
    ("ibv_destroy_qp", "destroy_return", True),
)
_NO_PERMISSION = (
    "no permission to watch queue pairs: run with sudo, or give CAP_BPF and CAP_PERFMON,"
    " on kernels since mid-2025 CAP_SYS_ADMIN too"
)
_EVENTS = 8192
"""Capacity for events that are not read yet."""
_MOST_LIBRARIES = 256
"""Copies of the library: each container may have its own, and any user can make more."""
_CALL_BYTES = 32
_CALLS = 16_384

# Offsets of the first three arguments and the result in struct pt_regs.
_REGISTERS = {"x86_64": (112, 104, 96, 80), "aarch64": (0, 8, 16, 0)}


@dataclass(frozen=True, slots=True)
class QpEvent:
    """One successful call. Times are nanoseconds since the Unix epoch."""

    kind: int
    """CREATED, MODIFIED or DESTROYED."""
    time_ns: int
    pid: int
    command: str
    qp: int
    """Address of the process's struct ibv_qp: distinguishes its queue pairs."""
    local_qp: int
    device: str
    type: int
    mask: int
    """enum ibv_qp_attr_mask: which of the following were set."""
    state: int
    path_mtu: int
    rq_psn: int
    sq_psn: int
    remote_qp: int
    remote_gid: bytes | None
    port: int
    gid_index: int


class Uprobes:
    """Probes on every copy of libibverbs of this host, until `close`.

    CaptureError names what is missing: privileges, bcc, uprobes, or the library.
    """

    def __init__(self, libraries: list[str] | None = None, most_events: int = _EVENTS) -> None:
        self.libraries: list[str] = []
        """Watched files."""
        self.skipped: dict[str, str] = {}
        """Files that could not be watched, and the reason."""
        self._known: set[tuple[int, int]] = set()
        self._links: list[int] = []
        self._programs: dict[str, int] = {}
        self._maps: list[int] = []
        try:
            self._load(most_events)
            self._attach(all_libraries() if libraries is None else libraries)
        except OSError as error:
            self.close()
            if error.errno in (errno.EPERM, errno.EACCES):
                raise CaptureError(_NO_PERMISSION) from None
            raise CaptureError(
                f"queue pairs cannot be watched: {(error.strerror or str(error)).lower()}"
            ) from None
        except BaseException:
            self.close()
            raise
        if not self.libraries:
            self.close()
            why = "; ".join(f"{path}: {reason}" for path, reason in self.skipped.items())
            raise CaptureError(f"no libibverbs to watch: {why[:1000] or 'install libibverbs1'}")

    def refresh(self) -> list[str]:
        """Watch copies in new containers; returns their paths.

        Copies are skipped if the privileges for them have been given up.
        """
        before = len(self.libraries)
        with suppress(CaptureError):
            self._attach(all_libraries())
        return self.libraries[before:]

    @property
    def lost(self) -> int:
        """Events that were lost because the ring was full."""
        return int.from_bytes(bpf.lookup(self._maps[1], bytes(4), 8), "little")

    def read(self) -> list[QpEvent]:
        """Events since the last call, oldest first."""
        if not self._maps:
            return []
        self._clock.check()
        events: list[QpEvent] = []
        while (value := bpf.take(self._maps[2], EVENT.itemsize)) is not None:
            events.append(self._event(value))
        return sorted(events, key=lambda event: event.time_ns)

    def close(self) -> None:
        """Detach everything."""
        for descriptor in (*self._links, *self._programs.values(), *self._maps):
            os.close(descriptor)
        self._links, self._programs, self._maps = [], {}, []

    def __enter__(self) -> Uprobes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, most_events: int) -> None:
        registers = _REGISTERS.get(platform.machine())
        if registers is None:
            raise CaptureError(f"queue pairs cannot be watched on {platform.machine()}")
        self._clock = WallClock()
        self._maps = [
            bpf.create_map(bpf.MAP_LRU_HASH, 8, _CALL_BYTES, _CALLS, name="rocescope_calls"),
            bpf.create_map(bpf.MAP_ARRAY, 4, 8, 1, name="rocescope_lost"),
            bpf.create_map(bpf.MAP_QUEUE, 0, EVENT.itemsize, most_events, name="rocescope_event"),
        ]
        names = ("ARGUMENT_1", "ARGUMENT_2", "ARGUMENT_3", "RETURN_VALUE")
        definitions = dict(zip(names, registers, strict=True))
        namespace = os.stat("/proc/self/ns/pid")
        definitions |= {
            "PID_NAMESPACE_DEVICE": namespace.st_dev,
            "PID_NAMESPACE_INODE": namespace.st_ino,
            "CALLS_FD": 0,
            "LOST_FD": 1,
            "EVENTS_FD": 2,
        }
        text = "".join(f"#define {name} {value}\n" for name, value in definitions.items())
        functions = tuple(function for _, function, _ in _PROBES)
        text += SOURCE.read_text(encoding="utf-8")
        code = known_machine_code(text, functions, self._maps)
        for name, instructions in code.items():
            self._programs[name] = load(PROG_KPROBE, instructions, name)

    def _attach(self, paths: list[str]) -> None:
        for path in paths:
            key = file_key(path)
            if key is None or key in self._known or len(self._known) == _MOST_LIBRARIES:
                continue
            self._known.add(key)
            try:
                self._attach_to(path)
            except ElfError as error:
                self.skipped[path] = str(error)
            except OSError as error:
                self.skipped[path] = (error.strerror or str(error)).lower()
                if error.errno in (errno.EPERM, errno.EACCES):
                    raise CaptureError(_NO_PERMISSION) from None
            else:
                self.libraries.append(path)

    def _attach_to(self, path: str) -> None:
        with opened(path) as library:
            symbols = defaults(functions_of(library))
            same_file = f"/proc/self/fd/{library}"  # whatever is at the path meanwhile
            for name, program, on_return in _PROBES:
                if name not in symbols:
                    raise ElfError(f"without {name}")
                at = symbols[name].file_offset
                self._links.append(attach_uprobe(self._programs[program], same_file, at, on_return))

    def _event(self, value: bytes) -> QpEvent:
        event = np.frombuffer(value, EVENT, 1)[0]
        told = {field.name: event[field.name].item() for field in fields(QpEvent)}
        told |= {
            "time_ns": told["time_ns"] + self._clock.offset_ns,
            "command": _text(told["command"]),
            "device": _text(told["device"]),
            "remote_gid": told["remote_gid"] if event["has_gid"] else None,
        }
        return QpEvent(**told)


def _text(value: bytes) -> str:
    return value.split(b"\0")[0].decode("utf-8", "replace")
