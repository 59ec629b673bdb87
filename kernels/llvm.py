"""LLVM's linker, by the C functions of llvmlite's library.

`import llvmlite.binding` calls the same functions, and takes four times as long as the library to
load. JITLink reports errors where LLVM's older linker crashes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import count
from typing import Any

_OBJECT, _LIBRARY = 2, 3
"""Kinds of elements that are linked: an object file, or a library by its name."""
_THIS_PROCESS = b""
_numbers = count()
"""Makes library names unique, as the linker requires."""


class _Element(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_uint8), ("value", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Symbol(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("address", ctypes.c_uint64))


def link(code: bytes, imports: Mapping[str, int], exports: Collection[str]) -> dict[str, int]:
    """Load an object file for execution; the addresses of the symbols `exports`.

    The code stays until the process ends: a thread may execute it while the interpreter ends.
    Raises RuntimeError for an object file that cannot be linked, for example an unknown symbol.
    """
    library, linker = _linker()
    elements = (_Element * 2)(
        _Element(_OBJECT, code, len(code)), _Element(_LIBRARY, _THIS_PROCESS, 0)
    )
    given = (_Symbol * len(imports))(*(_Symbol(name.encode(), at) for name, at in imports.items()))
    symbols = (_Symbol * len(exports))(*(_Symbol(name.encode(), 0) for name in exports))
    error = ctypes.c_char_p()
    if not library.LLVMPY_LLJIT_Link(
        linker,
        str(next(_numbers)).encode(),
        *(elements, ctypes.c_size_t(len(elements))),
        *(given, ctypes.c_size_t(len(given))),
        *(symbols, ctypes.c_size_t(len(symbols))),
        ctypes.byref(error),
    ):
        raise RuntimeError((error.value or b"").decode(errors="replace"))
    return {symbol.name.decode(): symbol.address for symbol in symbols}


@cache
def _linker() -> tuple[Any, ctypes.c_void_p]:
    """llvmlite's library and a linker in it."""
    spec = find_spec("llvmlite")
    if spec is None or not spec.origin:
        raise LookupError("llvmlite")
    folder = os.path.join(os.path.dirname(spec.origin), "binding")
    name = next(name for name in os.listdir(folder) if name.startswith("libllvmlite."))
    library = ctypes.PyDLL(os.path.join(folder, name))  # one thread at a time
    for function in (library.LLVMPY_CreateLLJITCompiler, library.LLVMPY_LLJIT_Link):
        function.restype = ctypes.c_void_p
    library.LLVMPY_InitializeNativeTarget()
    library.LLVMPY_InitializeNativeAsmPrinter()
    error = ctypes.c_char_p()
    suppress_errors, use_jit_link = ctypes.c_bool(True), ctypes.c_bool(True)
    linker = library.LLVMPY_CreateLLJITCompiler(
        None, suppress_errors, use_jit_link, ctypes.byref(error)
    )
    if not linker:
        raise RuntimeError((error.value or b"").decode(errors="replace"))
    return library, ctypes.c_void_p(linker)
