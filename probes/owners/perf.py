"""Uprobes by perf_event_open(2): without tracefs, removed by the kernel with the process."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

from ...analyzer.errors import CaptureError
from .. import bpf

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
