"""Calls of one shape are of one type for numba, which is asked here."""

from __future__ import annotations

import struct
import weakref
from itertools import combinations
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from rocescope.kernels.libraries import forget, format_of, packed, shape_of, text_of, writeable

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


VALUES = [
    *(0, True, 0.5, None, 2**63, np.uint64(1), np.uint32(1), np.uint8(3)),
    *(np.zeros(3, dtype) for dtype in ("<i8", "<u8", "<i4", "u1", "?", RECORD, ALIGNED)),
    *(np.zeros((2, 2)), np.zeros((1, 2)), np.zeros((0, 2))),
    *(np.asfortranarray(np.zeros((2, 2))), np.zeros((2, 2))[:, ::2]),
    *(np.zeros(4)[::2], np.zeros(4)[:2], np.array(1.0)),
    *(Pair(np.zeros(2), np.zeros(2)), Pair(np.zeros(2), 1), Pair(1, np.zeros(2)), Pair(1, 2)),
    *(Couple(np.zeros(2), np.zeros(2)), Pair(np.zeros(2), np.zeros(2, "i4"))),
    *((np.zeros(2), np.zeros(2)), (1, 2), (), Pair(Pair(1, 2), np.zeros(2))),
    Pair(np.array(1.0), np.array(2.0)),
]


def test_texts_are_equal_exactly_for_values_of_one_type() -> None:
    for one, other in combinations(VALUES, 2):
        texts = [text_of(shape_of((value,))) for value in (one, other)]
        same_type = numba.typeof(one) == numba.typeof(other)
        assert (texts[0] == texts[1]) == same_type, (one, other, texts)


def test_equal_shapes_have_equal_texts_and_words() -> None:
    for one, other in combinations(VALUES, 2):
        if shape_of((one,)) == shape_of((other,)):
            assert text_of(shape_of((one,))) == text_of(shape_of((other,)))
            assert format_of(shape_of((one,))) == format_of(shape_of((other,)))


def test_narrow_numbers_are_those_of_python() -> None:
    for value in (np.int8(1), np.int32(-1), np.int64(5)):
        assert text_of(shape_of((value,))) == text_of(shape_of((1,)))
    assert text_of(shape_of((np.bool(True),))) == text_of(shape_of((True,)))
    assert text_of(shape_of((np.float32(1),))) == text_of(shape_of((1.0,)))


def test_read_only_arrays_differ_only_in_what_may_be_written() -> None:
    free, fixed = np.zeros(3), read_only(np.zeros(3))
    for one, other in ((free, fixed), (Pair(1, free), Pair(1, fixed))):
        shapes = shape_of((one,)), shape_of((other,))
        assert shapes[0] != shapes[1]
        assert text_of(shapes[0]) == text_of(shapes[1])
        assert [list(writeable(shape)) for shape in shapes] == [[True], [False]]


def test_subclasses_of_arrays_are_arrays() -> None:
    odd, plain = np.zeros((2, 2)).view(np.matrix), np.zeros((2, 2))
    assert text_of(shape_of((odd,))) == text_of(shape_of((plain,)))
    assert format_of(shape_of((odd,))) == "q"


@pytest.mark.parametrize("value", ["text", [1], print, np.zeros(1, RECORD)[0], (1, "x"), 1j])
def test_what_kernels_do_not_take_is_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match="kernels take arrays"):
        text_of(shape_of((1, value)))


def test_a_tuple_is_the_words_of_its_items() -> None:
    array = np.zeros(3)
    value = Pair(Pair(True, None), Pair(array, (-1, 0.5, np.uint64(2**63))))
    assert packed(value) == struct.pack("=?7xqqdQ", True, id(array), -1, 0.5, 2**63)
    assert packed(value) is packed(value)
    assert len(packed(Pair(Pair(1, 2), 3))) == 24


def test_forgotten_arrays_leave_memory() -> None:
    array = np.zeros(9)
    left = weakref.ref(array)
    before = shape_of((Pair(array, array),))
    packed(Pair(array, array))
    del array
    assert left() is not None
    forget()
    assert left() is None
    assert shape_of((Pair(np.zeros(9), np.zeros(9)),)) == before
