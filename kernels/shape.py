"""The shape of a call: the key of the machine code for its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

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
    return int if -_LARGEST <= value <= _LARGEST else None


def _of_other(value: Any) -> Any:
    return _of_tuple(value) if isinstance(value, tuple) else type(value)


class _TupleShape:
    """The shape of a tuple, the same object for equal shapes: fast to compare and hash."""

    __slots__ = ("parts",)

    def __init__(self, parts: Shape) -> None:
        self.parts = parts


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


def text_of(shape: Shape) -> str | None:
    """The shape as text that is valid in every process; None when impossible."""
    words = [_words(part) for part in shape]
    return None if None in words else f"({', '.join(word for word in words if word)})"


def _words(shape: Any) -> str | None:
    if isinstance(shape, type):
        return _scalar(shape)
    if shape is None:
        return None
    kind, *rest = shape.parts if isinstance(shape, _TupleShape) else shape
    if kind is np.ndarray:
        dtype, ndim, flags = rest
        layout = "C" if flags & _C_CONTIGUOUS else "F" if flags & _F_CONTIGUOUS else "A"
        return f"array {_dtype(dtype)} {ndim} {layout} {bool(flags & _WRITEABLE)}"
    if not issubclass(kind, tuple):
        return _scalar(kind)
    inner = text_of(tuple(rest))
    return inner and f"{kind.__module__}.{kind.__qualname__}{getattr(kind, '_fields', '')}{inner}"


def _scalar(kind: type) -> str | None:
    if kind is type(None):
        return "None"
    if kind in (int, float, bool) or issubclass(kind, np.number | np.bool):
        return np.dtype(kind).str
    return None


@cache
def _dtype(dtype: np.dtype[Any]) -> str:
    return repr(dtype) if dtype.names else dtype.str
