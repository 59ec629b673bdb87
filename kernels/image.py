"""Machine code of a kernel as a small file that runs without the compiler.

Loading numba takes longer than a small analysis. A compiled kernel, however, is a C function for
CPython that only needs the addresses of some functions in CPython and in numba's extension modules.
Its object code is stored as an image, and a later process loads it with LLVM's linker (`llvm.py`).
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
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import numpy as np

from .cache import BOUNDS_CHECK
from .llvm import link
from .named import NamedTuple
from .stored import store, stored

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
