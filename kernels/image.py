"""Machine code loaded without numba: object code, LLVM's linker, and the call of a kernel.

Loading numba takes longer than a small analysis. A compiled kernel, however, is a C function for
CPython that only needs the addresses of some functions in CPython and in numba's extension modules.
Its object code is stored as an image, and a later process loads it with LLVM's linker.
The calling convention is internal to numba: `host` ensures that an image is used only with the
versions that made it. In any unusual case there is no image, and numba loads or compiles the kernel
as usual.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, module_from_spec
from itertools import count
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from .cache import BOUNDS_CHECK, store, stored
from .records import NamedTuple

# LLVM's linker, by the C functions of llvmlite's library.
#
# `import llvmlite.binding` calls the same functions, and takes four times as long as the library to
# load. JITLink reports errors where LLVM's older linker crashes.

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


# The shape of a call: the key of the machine code for its arguments.

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


_PROCESSOR_WORDS = (b"vendor", b"cpu family", b"model", b"flags", b"Features", b"CPU ")
"""Line prefixes of the processor features in /proc/cpuinfo."""


@cache
def host() -> str:
    """All inputs of machine code besides its source: this processor and these versions."""
    processor = b""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb", buffering=0) as file:
        first = file.read(16_384).partition(b"\n\n")[0]  # of many processors of one kind
        processor = b"\n".join(x for x in first.split(b"\n") if x.startswith(_PROCESSOR_WORDS))
    versions = f"{os.uname().machine} {sys.version} {np.__version__} {_numba_version()}"
    return f"{versions} {processor.decode(errors='replace')}"


class Image(NamedTuple):
    """Object code of one function; bytes and strings only, so that it can be stored."""

    code: bytes
    """A relocatable object file, as the compiler made it."""
    entry: str
    """Symbol of the function."""
    externals: tuple[str, ...]
    """Undefined names that may be numba's functions or Python's exceptions."""
    environments: tuple[str, ...]
    """Symbols of the variables that point to the Python objects of the function and its helpers."""


@cache
def usable() -> bool:
    """Whether images may be used: not when numba is configured otherwise."""
    variables = {name for name in os.environ if name.startswith("NUMBA_")} - {"NUMBA_CACHE_DIR"}
    return not (BOUNDS_CHECK or variables)


def save(image: Image, path: str) -> None:
    """Write an image atomically; failures are ignored."""
    store(tuple(image), path)


def load(path: str, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The machine code of a function as a callable; None without a valid image."""
    with contextlib.suppress(Exception):  # on any error numba works without an image
        return callable_of(Image(*stored(path)), function)
    return None


def callable_of(image: Image, function: Callable[..., Any]) -> Callable[..., Any]:
    """Load an image for execution; `function` is the Python function it was compiled from.

    Raises RuntimeError for an image that cannot be linked, for example with an unknown name.
    """
    entry, environment = _linked(image, function)
    module = sys.modules[function.__module__]
    made: Callable[..., Any] = _extension("_dynfunc").make_function(
        module, function.__name__, "", entry, environment, (environment,)
    )
    return made


def load_address(path: str, function: Callable[..., Any]) -> int | None:
    """The address of the machine code of a function; None without a valid image."""
    with contextlib.suppress(Exception):  # as in `load`
        entry, environment = _linked(Image(*stored(path)), function)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment))
        return entry
    return None


def _linked(image: Image, function: Callable[..., Any]) -> tuple[int, Any]:
    """(address of the entry, the Python objects that the code may use)."""
    environment = _extension("_dynfunc").Environment(function.__globals__)
    addresses = {symbol: _address(symbol) for symbol in image.externals}
    imports = {symbol: address for symbol, address in addresses.items() if address is not None}
    linked = link(image.code, imports, (image.entry, *image.environments))
    for symbol in image.environments:
        ctypes.c_void_p.from_address(linked[symbol]).value = id(environment)
    return linked[image.entry], environment


def _address(name: str) -> int | None:
    """Address of an external name, as in numba.core.base; None for an internal name."""
    kind, _, rest = name.partition("_")
    if kind == "PyExc":
        return id(vars(builtins)[rest]) if rest in vars(builtins) else None
    addresses: dict[str, int] = _runtime() if kind == "NRT" else _extension("_helperlib").c_helpers
    return addresses.get(rest)


@cache
def _runtime() -> dict[str, int]:
    """The functions of numba's memory management, initialised as in numba."""
    runtime = _extension("core.runtime._nrt_python")
    runtime.memsys_use_cpython_allocator()
    addresses: dict[str, int] = runtime.c_helpers
    return addresses


@cache
def _numba_folder() -> str:
    """The folder of numba, without importing it. LookupError when missing."""
    spec = find_spec("numba")
    if spec is None or not spec.origin:
        raise LookupError("numba")
    return os.path.dirname(spec.origin)


def _numba_version() -> str:
    with open(os.path.join(_numba_folder(), "_version.py")) as file:
        return file.read()


@cache
def _extension(name: str) -> Any:
    """An extension module of numba, loaded without the package."""
    full_name = f"numba.{name}"
    known: ModuleType | None = sys.modules.get(full_name)
    if known is not None:
        return known
    stem = os.path.join(_numba_folder(), *name.split("."))
    path = next(stem + end for end in EXTENSION_SUFFIXES if os.path.exists(stem + end))
    loader = ExtensionFileLoader(full_name, path)
    spec = ModuleSpec(full_name, loader, origin=path)
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
