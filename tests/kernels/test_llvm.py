"""The linker against object files that llvmlite compiles, and its calls against llvmlite's own."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import pytest
from llvmlite.binding import ffi

from rocescope.kernels.llvm import link

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
