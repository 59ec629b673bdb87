"""From C to machine code to programs in the kernel; every error names its remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import cache

from ...analyzer.errors import CaptureError
from .. import bpf
from .bcc_module import import_bcc
from .stub_headers import stub_headers


def machine_code(text: str, functions: Iterable[str]) -> dict[str, bytes]:
    """Instructions of these functions of a C source; CaptureError if it cannot be compiled."""
    bcc = import_bcc()
    with stub_headers():
        try:
            module = bcc.BPF(text=text.encode(), cflags=["-O2", "-Wno-everything"])
            code = {name: module.dump_func(name.encode()) for name in functions}
        except Exception as error:
            raise CaptureError(f"bcc cannot compile the probes: {error}") from None
    module.cleanup()
    return code


@cache
def known_machine_code(text: str, functions: tuple[str, ...]) -> dict[str, bytes]:
    """`machine_code`, compiled once per process: a process may attach the same probes often."""
    return machine_code(text, functions)


def load(kind: int, code: bytes, name: str, flags: int = 0, attach_type: int = 0) -> int:
    """Descriptor of a loaded program; CaptureError if the kernel rejects it."""
    try:
        return bpf.load_program(kind, code, name=name, flags=flags, attach_type=attach_type)
    except bpf.VerifierError as error:
        if error.errno == errno.EPERM:
            raise CaptureError(
                "the kernel refuses to load BPF programs (EPERM): run with sudo, or in a container"
                " with --privileged or a seccomp profile that allows bpf(2)"
            ) from None
        what = " ".join([line for line in error.log.splitlines() if line.strip()][-2:])
        reason = errno.errorcode.get(error.errno or 0) or os.strerror(error.errno or 0)
        raise CaptureError(
            f"this kernel's verifier rejects the {name} probe ({reason}): {what}"
        ) from None
