"""Runs eBPF programs on frames, without interfaces: BPF_PROG_TEST_RUN."""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from rocescope.probes.bpf import call_out

_PROG_TEST_RUN = 10


class BpfRun(NamedTuple):
    """The result of a program."""

    result: int
    nanoseconds: int
    """Average time of one run."""


def run_program(
    program: int,
    frame: bytes,
    *,
    repeat: int = 1,
    flags: int = 0,
    batch: int = 0,
    context: bytes = b"",
) -> BpfRun:
    """Run a program on a frame, `repeat` times. OSError with the errno of the kernel."""
    data, given = ctypes.create_string_buffer(frame), ctypes.create_string_buffer(context, 32)
    attributes = struct.pack(
        "4IQQ4IQQIII",
        program,
        0,
        len(frame),
        0,
        ctypes.addressof(data),
        0,
        repeat,
        0,
        len(context),
        0,
        ctypes.addressof(given) if context else 0,
        0,
        flags,
        0,
        batch,
    ).ljust(120, b"\0")
    _, out = call_out(_PROG_TEST_RUN, attributes)
    return BpfRun(struct.unpack_from("I", out, 4)[0], struct.unpack_from("I", out, 36)[0])
