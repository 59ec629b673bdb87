"""How a call reaches machine code: its types and words, and the library of each room.

A wheel holds the libraries, for two levels of x86-64. A checkout builds those of a room in
build/kernels when they are missing or a kernel changed (`build`); there, and only there, numba
compiles what no library holds.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..version import VERSION
from . import LibraryError

try:
    from _blake2 import (
        blake2b as blake2b,  # hashlib loads OpenSSL, which takes longer than all digests here
    )
except ImportError:  # pragma: no cover - an interpreter without it
    from hashlib import blake2b as blake2b


class Declared(Protocol):
    """A kernel (`kernel.Kernel`)."""

    __wrapped__: Callable[..., Any]
    __name__: str
    digest: str
    """Of its module, see `cache.module_digest`."""
    forceinline: bool
    allocates: bool


Shape: TypeAlias = tuple[Any, ...]
"""Shape of one argument or of all; equal shapes mean equal types for the compiler."""

_C_CONTIGUOUS, _F_CONTIGUOUS, _WRITEABLE = 0x1, 0x2, 0x400
"""NPY_ARRAY_C_CONTIGUOUS and so on (numpy/ndarraytypes.h)."""
_LARGEST = (1 << 63) - 1

_of_array = attrgetter("__class__", "dtype", "ndim", "flags.num")


def shape_of(arguments: tuple[Any, ...]) -> Shape:
    """The shape of a call; fast, because it precedes every call of a kernel.

    Equivalent calls may have different shapes; different calls never have equal shapes.
    """
    return tuple([_SHAPES.get(type(value), _of_other)(value) for value in arguments])


def _of_int(value: int) -> Any:
    return int if -_LARGEST <= value <= _LARGEST else np.uint64


def _of_other(value: Any) -> Any:
    if isinstance(value, tuple):
        return _of_tuple(value)
    return _of_array(value) if isinstance(value, np.ndarray) else type(value)


class _TupleShape:
    """The shape of a tuple, the same object for equal shapes: fast to compare and hash."""

    __slots__ = ("pack", "parts")

    def __init__(self, parts: Shape) -> None:
        self.parts = parts
        self.pack: Callable[..., bytes] | None = None


_TUPLES: dict[Shape, _TupleShape] = {}
_LAST: dict[type, tuple[Any, _TupleShape]] = {}
"""Per type the last tuple and its shape: the arrays of a state recur in every call."""


def _of_tuple(value: tuple[Any, ...]) -> _TupleShape:
    kind = type(value)
    last = _LAST.get(kind)
    if last is not None and last[0] is value:
        return last[1]
    try:
        parts: Shape = (kind, *map(_of_array, value))
    except AttributeError:  # not only arrays
        parts = (kind, *shape_of(value))
    shape = _TUPLES.get(parts)
    if shape is None:
        shape = _TUPLES.setdefault(parts, _TupleShape(parts))
    _LAST[kind] = value, shape
    return shape


_SHAPES: dict[type, Callable[[Any], Any]] = {np.ndarray: _of_array, int: _of_int}


def forget() -> None:
    """Let go of the tuples of the latest calls: their arrays would stay until the next calls."""
    _LAST.clear()
    _PACKED.clear()


def parts_of(shape: Any) -> tuple[type, tuple[Any, ...]]:
    """(type, parts) of the shape of one argument: parts of an array are dtype, ndim and flags."""
    if isinstance(shape, type):
        return shape, ()
    kind, *rest = shape.parts if isinstance(shape, _TupleShape) else shape
    return kind, tuple(rest)


def layout_of(flags: int) -> str:
    """The layout of an array as numba calls it: C, F or A."""
    return "C" if flags & _C_CONTIGUOUS else "F" if flags & _F_CONTIGUOUS else "A"


def scalar_of(kind: type) -> str:
    """The type by which a kernel takes a scalar of Python or numpy: a narrow integer as int64.

    Unsigned ones keep their width: arithmetic with them wraps around.
    """
    if kind is type(None):
        return "none"
    if kind is bool or issubclass(kind, np.bool):
        return "bool"
    if kind is int or issubclass(kind, np.signedinteger):
        return "int64"
    if issubclass(kind, np.unsignedinteger):
        return np.dtype(kind).name
    if issubclass(kind, float | np.floating):
        return "float64"
    raise TypeError(f"kernels take arrays, numbers and tuples of them, not {kind.__name__}")


def text_of(shape: Shape) -> str:
    """The types of a call as text, the same in every process; read-only arrays are not told apart.

    TypeError for an argument that kernels do not take.
    """
    return ",".join(map(_words, shape))


def _words(shape: Any) -> str:
    kind, parts = parts_of(shape)
    if issubclass(kind, np.ndarray):
        dtype, ndim, flags = parts
        return f"{_dtype(dtype)}{ndim}{layout_of(flags)}"
    if issubclass(kind, tuple):
        return (
            f"{kind.__module__}.{kind.__qualname__}{getattr(kind, '_fields', '')}({text_of(parts)})"
        )
    return scalar_of(kind)


@cache
def _dtype(dtype: np.dtype[Any]) -> str:
    return repr(dtype) if dtype.names else dtype.str


def writeable(shape: Shape) -> Iterator[bool]:
    """Whether each array of a call can be written to, those in tuples included."""
    for kind, parts in map(parts_of, shape):
        if issubclass(kind, np.ndarray):
            yield bool(parts[2] & _WRITEABLE)
        elif issubclass(kind, tuple):
            yield from writeable(parts)


def symbol_of(function: Callable[..., Any], text: str) -> str:
    """The name of the machine code of a function for such a call in a library."""
    full = f"{function.__module__}.{function.__qualname__} {text}"
    return f"{function.__name__}_{digest_of(full.encode())}"


def digest_of(data: bytes) -> str:
    """A short digest of data."""
    return blake2b(data, digest_size=12).hexdigest()


# How arguments are passed: words of 8 bytes, those of tuples after all others. The word of an array
# is the address of its object, whose fields the machine code reads (numpy's C API documents them:
# data, nd, dimensions, strides); a scalar is its value; a tuple is the words of its items.

_FORMATS = {"none": "", "bool": "?7x", "int64": "q", "float64": "d"}


def format_of(shape: Shape) -> str:
    """The words of these arguments, as for `struct`."""
    return "".join(map(_format, shape))


def _format(shape: Any) -> str:
    kind, parts = parts_of(shape)
    if issubclass(kind, np.ndarray):
        return "q"
    if issubclass(kind, tuple):
        return format_of(parts)
    return _FORMATS.get(scalar_of(kind), "Q")


def packed(value: tuple[Any, ...]) -> bytes:
    """The words of a tuple."""
    kind = type(value)
    last = _PACKED.get(kind)
    if last is not None and last[0] is value:
        return last[1]
    shape = _of_tuple(value)
    if shape.pack is None:
        shape.pack = struct.Struct(format_of(shape.parts[1:])).pack
    words = shape.pack(*_words_of(value))
    _PACKED[kind] = value, words
    return words


_PACKED: dict[type, tuple[Any, bytes]] = {}
"""Per type the last tuple and its words."""


def _words_of(value: tuple[Any, ...]) -> Iterator[Any]:
    for item in value:
        if isinstance(item, np.ndarray):
            yield id(item)
        elif isinstance(item, tuple):
            yield from _words_of(item)
        elif item is not None:
            yield item


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
