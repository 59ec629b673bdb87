"""The linker against object files that llvmlite compiles, and its calls against llvmlite's own."""

from __future__ import annotations

import ctypes
import marshal
import os
import weakref
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from llvmlite.binding import ffi
from numpy.typing import NDArray

from rocescope.kernels import image as machine_code
from rocescope.kernels import numba_side as compiling
from rocescope.kernels.image import Image, callable_of, forget, link, load, save, shape_of, text_of

# The linker against object files that llvmlite compiles, and its calls against llvmlite's own.

SOURCE = """
declare i64 @given(i64)
@place = global i64 5
define i64 @doubled(i64 %x) {
    %y = call i64 @given(i64 %x)
    %z = add i64 %y, %y
    ret i64 %z
}
"""
Unary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def code() -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        codemodel="large", reloc="static"
    )
    compiled: bytes = target.emit_object(llvm.parse_assembly(SOURCE))
    return compiled


@Unary
def squared(x: int) -> int:
    return x * x


@Unary
def negative(x: int) -> int:
    return -x


def test_code_is_linked_with_the_given_functions_every_time_anew(code: bytes) -> None:
    for given, expected in ((squared, 50), (negative, -10)):
        address = ctypes.cast(given, ctypes.c_void_p).value
        assert address is not None
        found = link(code, {"given": address}, ["doubled", "place"])
        assert Unary(found["doubled"])(5) == expected
        assert ctypes.c_int64.from_address(found["place"]).value == 5


def test_unknown_names_and_damaged_code_are_errors(code: bytes) -> None:
    address = ctypes.cast(squared, ctypes.c_void_p).value or 0
    for case in (
        (code, {}, ["doubled"]),
        (code, {"given": address}, ["tripled"]),
        (code[: len(code) // 2], {"given": address}, ["doubled"]),
        (b"", {"given": address}, ["doubled"]),
    ):
        with pytest.raises(RuntimeError, match="."):
            link(*case)


def test_llvmlite_calls_the_linker_with_the_same_arguments() -> None:
    """The functions are internal to llvmlite: another version may declare others."""
    text, flag, size, pointer = ctypes.c_char_p, ctypes.c_bool, ctypes.c_size_t, ctypes.POINTER
    create, bind = ffi.lib.LLVMPY_CreateLLJITCompiler, ffi.lib.LLVMPY_LLJIT_Link
    assert create.argtypes == [ffi.LLVMTargetMachineRef, flag, flag, pointer(text)]
    linker, name, elements, *rest, error = bind.argtypes
    assert (linker, name, error) == (ffi.LLVMOrcLLJITRef, text, pointer(text))
    assert [kind for _, kind in elements._type_._fields_] == [ctypes.c_uint8, text, size]
    assert rest[::2] == [size, size, size]
    for symbols in rest[1::2]:
        assert [kind for _, kind in symbols._type_._fields_] == [text, ctypes.c_uint64]


# Calls of one shape are of one type for numba, which is asked here.

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


# Images of machine code on disk: sound ones run, all others are as if they were not there.


def quotients(values: Any, divisors: Any, scale: Any) -> Any:
    """Loops, constants, a division that raises, several results."""
    total = 0.25
    for i in range(len(values)):
        total += values[i] // divisors[i] * scale
    return total, len(values)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of `quotients`, as it is stored."""
    folder = tmp_path_factory.mktemp("kernels")
    function = compiling.dispatcher(quotients, {"cache": True, "nogil": True}, str(folder))
    array = np.zeros(1, np.int64)
    compiling.compiled_for(function, (array, array, 1), str(folder / "a.code"))
    return Image(*marshal.loads((folder / "a.code").read_bytes()[4:]))


def test_an_image_does_what_the_function_does(image: Image) -> None:
    values, divisors = np.arange(10, 20), np.arange(1, 11)
    for _ in range(2):  # also when it is linked again
        call = callable_of(image, quotients)
        assert call(values, divisors, 3) == quotients(values, divisors, 3)
        assert call.__name__ == "quotients"


def test_errors_are_the_same(image: Image) -> None:
    call = callable_of(image, quotients)
    array = np.zeros(1, np.int64)
    with pytest.raises(ZeroDivisionError):
        call(array, array, 1)
    with pytest.raises(TypeError):
        call(array, array)
    with pytest.raises(TypeError):
        call(array, None, 1)
    assert call(array, array + 1, 1) == (0.25, 1)


def test_an_image_is_loaded_as_it_was_saved(image: Image, tmp_path: Path) -> None:
    path = str(tmp_path / "a.code")
    save(image, path)
    assert os.listdir(tmp_path) == ["a.code"]
    loaded = load(path, quotients)
    assert loaded is not None and loaded(np.arange(3), np.ones(3, np.int64), 1) == (3.25, 3)


def test_what_is_cut_or_changed_anywhere_is_not_loaded(image: Image, tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    save(image, str(path))
    sound = path.read_bytes()
    for at in range(0, len(sound), 97):
        path.write_bytes(sound[:at])
        assert load(str(path), quotients) is None
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        assert load(str(path), quotients) is None


@pytest.mark.parametrize(
    "content", [1, (), (b"", "f", ()), (b"", "f", (), (), 1), (1, 2, 3, 4), (b"code", "f", (), ())]
)
def test_what_is_no_image_is_not_loaded(tmp_path: Path, content: object) -> None:
    data = marshal.dumps(content)
    path = tmp_path / "a.code"
    path.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
    assert load(str(path), quotients) is None


def test_a_missing_file_or_folder_is_no_error(image: Image, tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "a.code")
    assert load(path, quotients) is None
    save(image, path)
    assert not os.listdir(tmp_path)


def test_what_the_linker_does_not_find_is_an_error(image: Image) -> None:
    """Names that differ by one letter: one that is called, the entry, and a variable."""
    for wrong in (
        image._replace(code=image.code.replace(b"PyErr_Occurred", b"PyErr_Occurreb")),
        image._replace(entry="elsewhere"),
        image._replace(environments=("elsewhere",)),
        image._replace(code=image.code[: len(image.code) // 2]),
    ):
        assert wrong != image
        with pytest.raises(RuntimeError):
            callable_of(wrong, quotients)


def test_the_environment_variables_of_numba_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = machine_code.usable.__wrapped__
    monkeypatch.setattr(machine_code, "BOUNDS_CHECK", False)
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/anywhere")
    assert usable()
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not usable()
