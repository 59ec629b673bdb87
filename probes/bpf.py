"""The kernel's bpf(2) call, and its clocks.

Attribute layouts: include/uapi/linux/bpf.h. Every function raises OSError with
the kernel's errno; the caller explains it to the user.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import time
from contextlib import suppress
from functools import cache

# Kernel time (CLOCK_MONOTONIC) to wall time.

_PAIRS = 16
_CHECK_EVERY_NS = 1_000_000_000
_STEP_NS = 200_000
_SET_BACK_NS = 1_000_000_000


class WallClock:
    """The offset between the two clocks.

    Both clocks run at the same, disciplined rate; their offset changes only
    when the wall clock is set. So the offset is measured precisely once, and
    again only after a check, once per second, detects a step: times within a
    capture do not drift.
    """

    def __init__(self) -> None:
        self.offset_ns, self._uncertainty_ns = measure()
        self._checked_ns = time.monotonic_ns()
        self.steps = 0
        """Number of steps of the wall clock during the capture."""
        self.set_back = 0
        """Number of them that went back by more than a second."""

    def check(self) -> None:
        """Check for a step, at most once per second."""
        now = time.monotonic_ns()
        if now - self._checked_ns < _CHECK_EVERY_NS:
            return
        self._checked_ns = now
        offset_ns, uncertainty_ns = measure()
        limit_ns = _STEP_NS + self._uncertainty_ns + uncertainty_ns
        if abs(offset_ns - self.offset_ns) > limit_ns:
            self.steps += 1
            self.set_back += self.offset_ns - offset_ns > _SET_BACK_NS
            self.offset_ns, self._uncertainty_ns = offset_ns, uncertainty_ns


def kernel_ns() -> int:
    """The time of BPF programs: that of the host, also in a container with its own clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _namespace_offset_ns()


@cache
def _namespace_offset_ns() -> int:
    """What the time namespace adds to the host's CLOCK_MONOTONIC (time_namespaces(7))."""
    with suppress(OSError, ValueError), open("/proc/self/timens_offsets") as file:
        for line in file:
            clock, seconds, nanoseconds = line.split()
            if clock in ("monotonic", str(time.CLOCK_MONOTONIC)):
                return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0


def measure() -> tuple[int, int]:
    """(wall - kernel time, half the width of the reading) in ns: the best of several readings."""
    best = (0, 1 << 62)
    for _ in range(_PAIRS):
        before = kernel_ns()
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = kernel_ns()
        if after - before < best[1]:
            best = (wall - (before + after) // 2, after - before)
    return best[0], best[1] // 2


_SYSTEM_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}

# Commands.
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD = 0, 1, 2, 5
_OBJ_GET_INFO_BY_FD, _LINK_CREATE = 15, 28
_PROG_GET_FD_BY_ID, _PROG_QUERY = 13, 16
_MAP_LOOKUP_AND_DELETE = 21

# Map types.
MAP_ARRAY = 2
MAP_PERCPU_ARRAY = 6
MAP_LRU_HASH = 9
MAP_QUEUE = 22
MAP_RINGBUF = 27
MAPPABLE = 1 << 10  # a flag: user space can map the values

# Program types.
PROG_SCHED_CLS, PROG_XDP = 3, 6
XDP_HAS_FRAGS = 1 << 5

# Attach types.
ATTACH_XDP, ATTACH_TCX_INGRESS, ATTACH_TCX_EGRESS = 37, 46, 47
XDP_GENERIC, XDP_NATIVE = 1 << 1, 1 << 2
BEFORE, AFTER = 1 << 3, 1 << 4

_LIBC = ctypes.CDLL(None, use_errno=True)
_LOG_BYTES = 1 << 20


class VerifierError(OSError):
    """A program that the kernel's verifier rejected; `log` is the verifier's log."""

    def __init__(self, errno: int, log: str) -> None:
        super().__init__(errno, os.strerror(errno))
        self.log = log


def call(command: int, attributes: bytes) -> int:
    """One bpf(2) call; its result."""
    result, _ = call_out(command, attributes)
    return result


def call_out(command: int, attributes: bytes) -> tuple[int, bytes]:
    """One bpf(2) call; its result and the attributes as the kernel left them."""
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise OSError(38, f"bpf(2) is not known on {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _LIBC.syscall(
        ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))
    )
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result, buffer.raw


def create_map(
    kind: int,
    key_bytes: int,
    value_bytes: int,
    entries: int,
    *,
    flags: int = 0,
    name: str = "",
) -> int:
    """A new map's file descriptor."""
    return call(
        _MAP_CREATE,
        struct.pack(
            "6I16s",
            kind,
            key_bytes,
            value_bytes,
            entries,
            flags,
            0,
            name.encode(),
        ).ljust(120, b"\0"),
    )


def update(map_fd: int, key: bytes, value: bytes) -> None:
    """Set the value of a key."""
    key_buffer, value_buffer = _buffer(key), _buffer(value)
    call(
        _MAP_UPDATE,
        struct.pack("I4xQQQ", map_fd, _address(key_buffer), _address(value_buffer), 0),
    )


def lookup(map_fd: int, key: bytes, value_bytes: int) -> bytes:
    """The value of a key; for a per-CPU map the values of all possible CPUs."""
    key_buffer, value_buffer = _buffer(key), ctypes.create_string_buffer(value_bytes)
    call(
        _MAP_LOOKUP,
        struct.pack("I4xQQQ", map_fd, _address(key_buffer), _address(value_buffer), 0),
    )
    return value_buffer.raw


def take(map_fd: int, value_bytes: int) -> bytes | None:
    """Remove and return the oldest value of a queue; None if it is empty."""
    value_buffer = ctypes.create_string_buffer(value_bytes)
    attributes = struct.pack("I4xQQQ", map_fd, 0, _address(value_buffer), 0)
    try:
        call(_MAP_LOOKUP_AND_DELETE, attributes)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return value_buffer.raw


def load_program(
    kind: int, instructions: bytes, *, name: str, flags: int = 0, attach_type: int = 0
) -> int:
    """The file descriptor of a loaded program; VerifierError if it is rejected."""
    code = _buffer(instructions)
    license_text = _buffer(b"Dual MIT/GPL\0")

    def attributes(log: int, log_bytes: int) -> bytes:
        return struct.pack(
            "2IQQ2IQII16sII",
            kind,
            len(instructions) // 8,
            _address(code),
            _address(license_text),
            1 if log else 0,
            log_bytes,
            log,
            0,
            flags,
            name.encode()[:15],
            0,
            attach_type,
        ).ljust(120, b"\0")

    try:
        return call(_PROG_LOAD, attributes(0, 0))
    except OSError as error:
        # The log is large and slow to write, so it is requested only after an error.
        text = ctypes.create_string_buffer(_LOG_BYTES)
        try:
            return call(_PROG_LOAD, attributes(_address(text), _LOG_BYTES))
        except OSError:
            raise VerifierError(error.errno or 0, text.value.decode("utf-8", "replace")) from None


def create_link(program: int, ifindex: int, attach_type: int, flags: int = 0) -> int:
    """Attach a program to an interface of this thread's namespace until the result is closed."""
    attributes = struct.pack("4I", program, ifindex, attach_type, flags).ljust(64, b"\0")
    return call(_LINK_CREATE, attributes)


def object_info(fd: int, size: int = 256) -> bytes:
    """The kernel's information about a map, program or link."""
    info = ctypes.create_string_buffer(size)
    call(_OBJ_GET_INFO_BY_FD, struct.pack("IIQ", fd, size, _address(info)))
    return info.raw


def program_by_id(number: int) -> int:
    """A descriptor of a loaded program."""
    return call(_PROG_GET_FD_BY_ID, struct.pack("3I", number, 0, 0))


def query(ifindex: int, attach_type: int, ids_address: int, room: int) -> int:
    """Write the ids of the programs at a hook, in their order, to an array; returns how many."""
    attributes = struct.pack("4IQI", ifindex, attach_type, 0, 0, ids_address, room)
    _, out = call_out(_PROG_QUERY, attributes.ljust(64, b"\0"))
    count: int = struct.unpack_from("I", out, 24)[0]
    return count


def possible_cpus() -> int:
    """Number of CPUs with per-CPU values in the kernel."""
    return _cpus("possible")[-1] + 1


def online_cpus() -> list[int]:
    """Numbers of the online CPUs."""
    return _cpus("online")


def _cpus(which: str) -> list[int]:
    with open(f"/sys/devices/system/cpu/{which}", encoding="ascii") as file:
        ranges = [part.split("-") for part in file.read().strip().split(",")]
    return [cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)]


def page_bytes() -> int:
    """Size of a memory page."""
    return mmap.PAGESIZE


def _buffer(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data, max(len(data), 1))


def _address(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)
