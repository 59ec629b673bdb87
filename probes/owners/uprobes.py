"""Probes in libibverbs: which libraries, which events, which process makes a queue pair."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from ...analyzer.errors import CaptureError
from .. import bpf
from ..bpf import WallClock
from ..program.compile import known_machine_code, load
from .elf import ElfError, defaults, functions_of, opened

# Copies of libibverbs: on this host, and in the containers of running processes.

_NAME = "libibverbs.so.1"
_FOLDERS = (
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/local/lib",
)
_MAPPED = re.compile(r"^\S+ r\S+ \S+ \S+ \d+ +(/\S*/libibverbs\.so\.1\S*)$", re.MULTILINE)

_MOST_MAPS_CHARACTERS = 4 << 20
"""A process has at most 65,530 mappings (vm.max_map_count), of some 100 characters."""
_MOST_COPIES = 4
"""Copies of one process that are looked at: a process uses one."""


def installed_libraries() -> list[str]:
    """Copies of libibverbs in the standard folders of this host, each once."""
    return _each_once(os.path.join(folder, _NAME) for folder in _FOLDERS)


def mapped_libraries(proc: str = "/proc") -> list[str]:
    """Copies of libibverbs that running processes use, by paths that this process can open.

    Containers have their own files: their paths go through `/proc/PID/root`.
    """
    return _each_once(_mapped_paths(proc))


def all_libraries(proc: str = "/proc") -> list[str]:
    """Installed copies and those in use, each file once."""
    return _each_once((*installed_libraries(), *mapped_libraries(proc)))


def file_key(path: str) -> tuple[int, int] | None:
    """The identity of a file: (device, inode); None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _mapped_paths(proc: str) -> Iterator[str]:
    for process in Path(proc).iterdir():
        if not process.name.isdigit():
            continue
        try:
            with open(process / "maps", encoding="utf-8", errors="replace") as maps:
                paths = set(_MAPPED.findall(maps.read(_MOST_MAPS_CHARACTERS)))
        except OSError:
            continue  # it ended, or belongs to another user
        for path in sorted(paths)[:_MOST_COPIES]:
            yield f"{process}/root{path}"


def _each_once(paths: Iterable[str]) -> list[str]:
    found: dict[tuple[int, int], str] = {}
    for path in paths:
        key = file_key(path)
        if key is not None:
            found.setdefault(key, os.path.realpath(path) if "/root/" not in path else path)
    return list(found.values())


# Uprobes by perf_event_open(2): without tracefs, removed by the kernel with the process.

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_PMU = Path("/sys/bus/event_source/devices/uprobe")
PROG_KPROBE = 2
"""Type of the programs that run at probes (BPF_PROG_TYPE_KPROBE)."""

_CLOSE_ON_EXEC = 8
_ATTACH_PERF_EVENT = 41
_ATTRIBUTE_BYTES = 72  # PERF_ATTR_SIZE_VER1 of linux/perf_event.h, the first with config2


def attach_uprobe(program: int, path: str, file_offset: int, on_return: bool) -> int:
    """Run a program at an instruction of a file, in every process; returns the link's descriptor.

    OSError with the kernel's reason; CaptureError if the kernel has no uprobes.
    """
    config = 1 << _return_bit() if on_return else 0
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = struct.pack(
        "IIQQQQQIIQQ",
        _pmu_type(),
        _ATTRIBUTE_BYTES,
        config,
        0,
        0,
        0,
        0,
        0,
        0,
        ctypes.addressof(name),
        file_offset,
    )
    event = _perf_event_open(attributes)
    try:
        return bpf.create_link(program, event, _ATTACH_PERF_EVENT)
    finally:
        os.close(event)  # the link holds a reference


def _perf_event_open(attributes: bytes) -> int:
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise CaptureError(f"queue pairs cannot be watched on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    everyone, any_one_cpu, no_group = ctypes.c_int(-1), ctypes.c_int(0), ctypes.c_int(-1)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(
        ctypes.c_long(number),
        buffer,
        everyone,
        any_one_cpu,
        no_group,
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return descriptor


def _pmu_type() -> int:
    try:
        return int((_PMU / "type").read_text())
    except (OSError, ValueError):
        raise CaptureError(
            "this kernel has no uprobes (CONFIG_UPROBE_EVENTS): owners of queue pairs are"
            " read only from the kernel's resource table"
        ) from None


def _return_bit() -> int:
    try:
        return int((_PMU / "format" / "retprobe").read_text().partition(":")[2])
    except (OSError, ValueError):
        return 0


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
