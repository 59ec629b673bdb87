"""From C to machine code to programs in the kernel; every error names its remedy.

As a program: compiles what standard input says. The compiler's libraries take 60 MB, which a
process that captures for hours should not hold.
"""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache

import msgspec

from ...analyzer.errors import CaptureError
from ...kernels.cache import cache_base, digest_of, remove_foreign
from ...kernels.stored import store, stored
from ...version import VERSION
from .. import bpf
from .bcc_module import find_bcc, import_bcc
from .stub_headers import HEADERS, stub_headers

_FLAGS = ["-O2", "-Wno-everything"]
_SECONDS = 120.0
"""Longest time of the compiler."""
_LOAD_IMMEDIATE = 0x18  # BPF_LD | BPF_IMM | BPF_DW
_PSEUDO_MAP_FD = 1


def machine_code(text: str, functions: Iterable[str]) -> dict[str, bytes]:
    """Instructions of these functions of a C source; CaptureError if it cannot be compiled."""
    bcc = import_bcc()
    with stub_headers():
        try:
            module = bcc.BPF(text=text.encode(), cflags=_FLAGS)
            code = {name: module.dump_func(name.encode()) for name in functions}
        except Exception as error:
            raise CaptureError(f"bcc cannot compile the probes: {error}") from None
    module.cleanup()
    return code


class _Source(msgspec.Struct):
    """What to compile, on standard input of the program."""

    text: str
    functions: tuple[str, ...]


class _Compiled(msgspec.Struct):
    """Its answer on standard output."""

    code: dict[str, bytes] = {}
    error: str | None = None


def machine_code_apart(text: str, functions: tuple[str, ...]) -> dict[str, bytes]:
    """`machine_code`, in a process that ends afterwards."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=msgspec.msgpack.encode(_Source(text, functions)),
            stdout=subprocess.PIPE,
            cwd="/",
            timeout=_SECONDS,
            check=False,
        )
        answer = msgspec.msgpack.decode(done.stdout, type=_Compiled)
    except (OSError, msgspec.DecodeError, subprocess.TimeoutExpired):
        raise CaptureError("the compiler of the probes ended without an answer") from None
    if answer.error is not None:
        raise CaptureError(answer.error)
    return answer.code


def known_machine_code(
    text: str, functions: tuple[str, ...], maps: Sequence[int]
) -> dict[str, bytes]:
    """`machine_code`, compiled once and then read from the cache of this user.

    maps: descriptors; the text has the index of each map here in place of its descriptor, so
    that it is the same in every process.
    """
    return {name: _with_maps(code, maps) for name, code in _known(text, functions).items()}


@cache
def _known(text: str, functions: tuple[str, ...]) -> dict[str, bytes]:
    bcc = find_bcc()
    base = cache_base()
    if base is None:
        return machine_code_apart(text, functions)
    # The compiler adapts what it makes to the running kernel.
    made_by = (VERSION, bcc, os.uname().release, os.uname().machine)
    headers = [path.read_bytes() for path in sorted(HEADERS.rglob("*.h"))]
    key = digest_of(repr((text, functions, headers, _FLAGS, made_by)).encode())
    path = os.path.join(base, key, "probes.code")
    with suppress(OSError):
        remove_foreign(os.path.dirname(path))
    code: dict[str, bytes] | None = stored(path)
    if code is None:
        code = machine_code_apart(text, functions)
        with suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        store(code, path)
    return code


def _with_maps(code: bytes, maps: Sequence[int]) -> bytes:
    """The code with the descriptors of maps in place of their indices."""
    instructions = bytearray(code)
    at = 0
    while at < len(code):
        wide = code[at] == _LOAD_IMMEDIATE
        if wide and code[at + 1] >> 4 == _PSEUDO_MAP_FD:
            index = struct.unpack_from("<i", code, at + 4)[0]
            struct.pack_into("<i", instructions, at + 4, maps[index])
        at += 16 if wide else 8
    return bytes(instructions)


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


def main() -> None:
    """Compile what standard input says; the answer is on standard output."""
    source = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Source)
    try:
        answer = _Compiled(machine_code(source.text, source.functions))
    except CaptureError as error:
        answer = _Compiled(error=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
