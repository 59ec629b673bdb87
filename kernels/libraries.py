"""Libraries of compiled kernels, one for each room: found, checked, opened and called.

A wheel holds them, for two levels of x86-64. A checkout builds those of a room in build/kernels
when they are missing or a kernel changed (`build`); there, and only there, numba compiles what no
library holds.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..version import VERSION
from . import LibraryError
from .signature import Declared, Shape, digest_of, format_of, packed, parts_of, writeable

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_IN_WHEEL = os.path.join(PACKAGE, "kernels", "compiled")
BUILT = os.path.join(PACKAGE, "build", "kernels")
PACKAGED = os.path.isdir(_IN_WHEEL)
"""Whether this is an installed wheel, whose kernels do not change."""
ROOMS = (
    "analyzer.decode.mrc",
    "analyzer.decode.unwrapping",
    "analyzer.measures.conformance",
    "analyzer.measures.mrc",
    "analyzer",
    "discovery",
    "probes",
    "replay.aggregation",
    "replay",
)
"""Folders with kernels, and parts of them that few captures need; `calls` lists their calls."""
ABI = 1
"""Of the words that a kernel is called with."""


@cache
def level() -> str:
    """What the libraries of this machine are compiled for, by the flags of its processor."""
    machine = os.uname().machine
    if machine != "x86_64":
        return machine
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            flags = file.read(16_384).partition(b"\nflags")[2].partition(b"\n")[0].split()
    except OSError:
        flags = []
    v3 = {b"avx2", b"bmi1", b"bmi2", b"fma", b"f16c", b"movbe", b"abm"}
    return "x86-64-v3" if v3.issubset(flags) else "x86-64-v2"


def identity(room: str, level: str) -> str:
    """What a library says about itself."""
    return f"rocescope {VERSION} {room} {level} {ABI}"


def room_of(module: str) -> str | None:
    """The room of a module; None for a module of others, such as a notebook."""
    package, _, name = module.partition(".")
    if package == __name__.partition(".")[0]:
        return next((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), None)
    return None


@cache
def of_wheel(room: str) -> Library:
    """The library of a room in an installed wheel."""
    return Library(os.path.join(_IN_WHEEL, f"{room}-{level()}.so"), room)


class Library:
    """An open library. LibraryError when it is missing, damaged or foreign."""

    def __init__(self, path: str, room: str) -> None:
        self.room = room
        try:
            _check_whole(path)
            self._library = ctypes.CDLL(path)
            said = self._text("rocescope_kernels") or "something else"
            check_layout(self._library.rocescope_array)
        except (OSError, AttributeError, struct.error) as error:
            reason = getattr(error, "strerror", None) or str(error) or "damaged"
            raise LibraryError(f"{path}: {reason}; install rocescope again") from None
        if said != identity(room, level()):
            raise LibraryError(f"{path} is of {said}, not of {identity(room, level())}")

    def _text(self, symbol: str) -> str | None:
        try:
            text = ctypes.c_char.in_dll(self._library, symbol)
        except ValueError:
            return None
        return ctypes.string_at(ctypes.addressof(text)).decode()

    def is_fresh(self, kernel: Declared) -> bool:
        """Whether the module of a kernel is as it was when the library was built."""
        module = kernel.__wrapped__.__module__
        return self._text(f"module_{digest_of(module.encode())}") in (kernel.digest, None)

    def is_of(self, calls: str) -> bool:
        """Whether it was built for calls with this digest."""
        return self._text("rocescope_calls") == calls

    def address(self, symbol: str) -> int | None:
        """The address of a function; None if it is not in this library."""
        try:
            return ctypes.cast(self._library[symbol], ctypes.c_void_p).value
        except AttributeError:
            return None

    def entry(self, symbol: str, shape: Shape) -> Callable[..., Any] | None:
        """A kernel as a Python function; None if it is not in this library.

        ValueError for a read-only array where the kernel may write.
        """
        about = self._text(f"{symbol}_types")
        if about is None:
            return None
        results, _, taken = about.partition(" ")
        for can_write, may_write in zip(writeable(shape), taken, strict=True):
            if may_write == "w" and not can_write:
                raise ValueError(f"{symbol.rpartition('_')[0]} may write to a read-only array")
        return _call_of(self._library[symbol], shape, results)


def _check_whole(path: str) -> None:
    """OSError if a file is no ELF file, or shorter than it says: to map that would crash."""
    with open(path, "rb", buffering=0) as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            raise OSError("no library of 64 bits")
        (sections,) = struct.unpack_from("<Q", header, 40)
        size, number = struct.unpack_from("<HH", header, 58)
        if os.fstat(file.fileno()).st_size < sections + size * number:
            raise OSError("incomplete")


def check_layout(describe: Any) -> None:
    """OSError unless machine code finds the fields of an array, as `describe` of a library does."""
    array = np.zeros((4, 6), np.int16)[::2, ::3]
    seen = (ctypes.c_int64 * 5)()
    describe(ctypes.c_void_p(id(array)), seen)
    expected = (array.__array_interface__["data"][0], *array.shape, *array.strides)
    if tuple(seen) != expected:
        raise OSError("arrays of this build of Python and numpy have another layout")


def _call_of(function: Any, shape: Shape, results: str) -> Callable[..., Any]:
    """A Python function that calls the machine code with arguments of this shape.

    results: their words, as for `struct`, in parentheses for a tuple.
    """
    function.restype, function.argtypes = ctypes.c_int64, (ctypes.c_char_p,)
    kinds = [parts_of(part)[0] for part in shape]
    tuples = [k for k, kind in enumerate(kinds) if issubclass(kind, tuple)]
    alone = [k for k, kind in enumerate(kinds) if k not in tuples and kind is not type(None)]
    takers = [(k, issubclass(kinds[k], np.ndarray)) for k in alone]
    pack = struct.Struct("q" + format_of(tuple(shape[k] for k in alone))).pack
    unpack = struct.Struct(results.strip("()")).unpack_from
    is_tuple, is_none = results.startswith("("), not results
    most = max(2, len(results))
    unused: list[tuple[int, Any]] = []  # words for results; several threads may call at a time

    def call(*arguments: Any) -> Any:
        try:
            address, out = unused.pop()
        except IndexError:
            out = (ctypes.c_int64 * most)()
            address = ctypes.addressof(out)
        words = pack(address, *[id(arguments[k]) if a else arguments[k] for k, a in takers])
        for k in tuples:
            words += packed(arguments[k])
        if function(words):
            raise _error(out)
        if is_none:
            unused.append((address, out))
            return None
        values = unpack(out)
        unused.append((address, out))
        return values if is_tuple else values[0]

    return call


def _error(out: Any) -> BaseException:
    """The exception that a kernel raised; out: address and length of (class, arguments, place)."""
    import pickle

    kind, arguments, _ = pickle.loads(ctypes.string_at(out[0], out[1]))
    error: BaseException = kind(*(arguments or ()))
    return error
