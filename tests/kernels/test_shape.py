"""Calls of one shape are of one type for numba, which is asked here."""

from __future__ import annotations

import weakref
from itertools import combinations
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from rocescope.kernels.shape import forget, shape_of, text_of

RECORD = np.dtype([("a", "<i4"), ("b", "u1")])
ALIGNED = np.dtype([("a", "<i4"), ("b", "u1")], align=True)


class Pair(NamedTuple):
    one: Any
    other: Any


class Couple(NamedTuple):
    one: Any
    other: Any


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def unaligned() -> NDArray[Any]:
    return np.zeros(9, np.uint8)[1:].view(np.int64)


VALUES = [
    *(0, -1, 2**31, 2**62, True, False, 0.5, None),
    *(np.int64(1), np.int32(1), np.uint64(1), np.bool(True), np.float64(1)),
    *(np.zeros(3, dtype) for dtype in ("<i8", "<u8", "<i4", "u1", "?", RECORD, ALIGNED)),
    *(
        np.zeros((2, 2)),
        np.zeros((1, 2)),
        np.zeros((0, 2)),
        np.asfortranarray(np.zeros((2, 2))),
        np.zeros((2, 2))[:, ::2],
    ),
    *(np.zeros(4)[::2], np.zeros(4)[:2], np.array(1.0), read_only(np.zeros(3)), unaligned()),
    *(Pair(np.zeros(2), np.zeros(2)), Pair(np.zeros(2), 1), Pair(1, np.zeros(2)), Pair(1, 2)),
    *(Couple(np.zeros(2), np.zeros(2)), Pair(np.zeros(2), np.zeros(2, "i4"))),
    *(Pair(np.zeros(2), read_only(np.zeros(2))), Pair(np.float64(1), np.float64(2))),
    *((np.zeros(2), np.zeros(2)), (1, 2), (), Pair(Pair(1, 2), np.zeros(2))),
    Pair(np.array(1.0), np.array(2.0)),
]


def test_texts_are_equal_exactly_for_values_of_one_type() -> None:
    for one, other in combinations(VALUES, 2):
        texts = [text_of(shape_of((value,))) for value in (one, other)]
        assert None not in texts
        same_type = numba.typeof(one) == numba.typeof(other)
        assert (texts[0] == texts[1]) == same_type, (one, other, texts)


def test_equal_shapes_have_equal_texts() -> None:
    for one, other in combinations(VALUES, 2):
        if shape_of((one,)) == shape_of((other,)):
            assert text_of(shape_of((one,))) == text_of(shape_of((other,)))


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63), "text", [1], print, np.zeros(1, RECORD)[0], np.datetime64("now"), (1, "x")],
)
def test_what_is_unusual_has_no_text(value: Any) -> None:
    assert text_of(shape_of((1, value))) is None


def test_subclasses_of_arrays_have_no_text() -> None:
    odd = np.zeros((2, 2)).view(np.matrix)
    assert text_of(shape_of((odd,))) is None
    assert text_of(shape_of((Pair(odd, odd),))) is None


def test_forgotten_arrays_leave_memory() -> None:
    array = np.zeros(9)
    left = weakref.ref(array)
    before = shape_of((Pair(array, array),))
    del array
    assert left() is not None
    forget()
    assert left() is None
    assert shape_of((Pair(np.zeros(9), np.zeros(9)),)) == before
