"""The types of a call: they choose the machine code, and say how the arguments are passed to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np

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
