"""Compiles a BPF program with bcc, without kernel headers.

As a program: compiles what standard input says. The compiler's libraries take 60 MB, which a
process that captures for hours should not hold.
"""

from __future__ import annotations

import errno
import importlib
import marshal
import os
import stat
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ...analyzer.errors import CaptureError
from ...kernels.cache import cache_base, is_own, remove_foreign, say_refused
from ...kernels.libraries import digest_of
from ...version import VERSION
from .. import bpf

# Stand-ins for the kernel headers that bcc includes into every program.
#
# The probes do not use them. With these stand-ins bcc compiles on machines with and
# without kernel headers. They belong to the package: no other user can write to them.

HEADERS = Path(__file__).with_name("headers")
"""Their folder."""
_VARIABLE = "BCC_KERNEL_SOURCE"


@contextmanager
def stub_headers() -> Iterator[None]:
    """Context manager in which bcc compiles against the stand-ins."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(HEADERS)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


# The only place that finds and imports bcc, which is a system package and not on PyPI.

_SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"


def import_bcc() -> Any:
    """The module bcc; CaptureError if the package is not installed.

    If this Python does not see the system's packages, their folder is added to the
    end of the search path, after everything that is installed here.
    """
    try:
        return _import()
    except ImportError:
        pass
    if _SYSTEM_PACKAGES not in sys.path:
        sys.path.append(_SYSTEM_PACKAGES)
    try:
        return _import()
    except (ImportError, OSError):
        raise _missing() from None


def find_bcc() -> bytes:
    """What names the version of the installed bcc, without its libraries: 60 MB of memory.

    CaptureError if the package is not installed.
    """
    for more in ((), (_SYSTEM_PACKAGES,)):
        sys.path += [path for path in more if path not in sys.path]
        spec = find_spec("bcc")
        folders = spec.submodule_search_locations if spec else None
        for folder in folders or ():
            if os.path.exists(os.path.join(folder, "libbcc.py")):
                with open(os.path.join(folder, "version.py"), "rb") as file:
                    return file.read()
    raise _missing()


def _missing() -> CaptureError:
    return CaptureError(
        "live capture needs bcc: apt-get install python3-bpfcc (Debian, Ubuntu)"
        " or dnf install python3-bcc (Fedora, RHEL); bcc on PyPI is another package"
    )


def _import() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", SyntaxWarning
        )  # bcc has invalid escapes, a warning since Python 3.12
        module = importlib.import_module("bcc")
    if not hasattr(module, "BPF"):  # an unrelated package of the same name
        sys.modules.pop("bcc", None)
        raise ImportError("not the BPF Compiler Collection")
    return module


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


# Values in files of a cache: written atomically, checked when they are read.

_CHECKSUM_BYTES = 4


def store(value: Any, path: str) -> None:
    """Write a value of Python's own types; its folder must exist. Failures change nothing."""
    data = marshal.dumps(value)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb", opener=create_own) as file:
            file.write(zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say_full(os.path.dirname(os.path.dirname(path)))


@cache
def _say_full(folder: str) -> None:
    """Once: later runs compile again."""
    with suppress(OSError, AttributeError):  # there may be no standard error
        print(
            f"rocescope: compiled probes are not cached in {folder}: no space left",
            file=sys.stderr,
        )


def stored(path: str) -> Any:
    """The value in a file; None when it is missing or damaged, or others can write to it."""
    with suppress(OSError, ValueError, EOFError, TypeError):
        content = read_own(path)
        data = content[_CHECKSUM_BYTES:]
        if zlib.crc32(data) == int.from_bytes(content[:_CHECKSUM_BYTES], "little"):
            return marshal.loads(data)
    return None


def read_own(path: str) -> bytes:
    """The contents of a file that only this user or root can have written.

    Another file raises PermissionError, a missing one FileNotFoundError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not is_own(status):
            say_refused(path)
            raise PermissionError(errno.EACCES, "another user can write to it", path)
        return file.read()


def create_own(path: str, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> int:
    """A file that only this user can write to, whatever the umask; for `open` as `opener`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


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
