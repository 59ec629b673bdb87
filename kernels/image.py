"""Machine code of a kernel that runs without its compiler, kept as a small file.

Loading numba takes longer than a small analysis. What it makes of a kernel, however,
is a C function for CPython that needs no more than the addresses of some functions
in CPython and in numba's extension modules. So its object code is linked once into
an image; a later process only puts the image into memory and the addresses into it.

How such functions are called is numba's own affair: `host` makes sure that an image
meets the very versions that it was made with. Where anything is unusual there is no
image, and numba loads or compiles the kernel as ever.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import marshal
import mmap
import os
import sys
import zlib
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import numpy as np

from .cache import BOUNDS_CHECK
from .named import NamedTuple

_CHECKSUM_BYTES = 4
_WORD_BYTES = 8
_PROCESSOR_WORDS = (b"vendor", b"cpu family", b"model", b"flags", b"Features", b"CPU ")
"""Beginnings of the lines of /proc/cpuinfo that tell what a processor can do."""


@cache
def host() -> str:
    """All that machine code depends on besides its source: this computer, these versions."""
    processor = b""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb", buffering=0) as file:
        first = file.read(16_384).partition(b"\n\n")[0]  # of many processors of one kind
        processor = b"\n".join(x for x in first.split(b"\n") if x.startswith(_PROCESSOR_WORDS))
    versions = f"{os.uname().machine} {sys.version} {np.__version__} {_numba_version()}"
    return f"{versions} {processor.decode(errors='replace')}"


SELF, ENVIRONMENT, EXTERNAL = 0, 1, 2
"""Bases of an address: the image, the environment object, the first of `externals`."""


class Image(NamedTuple):
    """Machine code of one function; bytes and numbers only, so that it can be stored."""

    code: bytes
    entry: int
    """Where the function begins in `code`."""
    externals: tuple[str, ...]
    """Functions and objects elsewhere that the code refers to."""
    places: bytes
    """int64[n]: where in `code` an address belongs, eight bytes each."""
    bases: bytes
    """int64[n]: what it is relative to, SELF, ENVIRONMENT or EXTERNAL + index."""
    addends: bytes
    """int64[n]: what is added to the base."""


@cache
def usable() -> bool:
    """Whether images may be used at all: not where numba itself was told to do otherwise."""
    told = {name for name in os.environ if name.startswith("NUMBA_")} - {"NUMBA_CACHE_DIR"}
    return not (BOUNDS_CHECK or told)


def save(image: Image, path: str) -> None:
    """Write an image so that it appears whole or not at all; it need not succeed."""
    data = marshal.dumps(tuple(image))
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        with open(temporary, "wb") as file:
            file.write(zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data)
        os.replace(temporary, path)


def load(path: str, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The machine code of a function as a callable; None when none is there that is sound."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        data = content[_CHECKSUM_BYTES:]
        if zlib.crc32(data) != int.from_bytes(content[:_CHECKSUM_BYTES], "little"):
            return None
        return callable_of(Image(*marshal.loads(data)), function)
    except (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ImportError):
        return None


def callable_of(image: Image, function: Callable[..., Any]) -> Callable[..., Any]:
    """Put an image into memory for executing; `function` is what it was compiled from.

    Raises LookupError for an external that is not known here, OSError when memory
    must not be executed.
    """
    bind = _extension("_dynfunc")
    environment = bind.Environment(function.__globals__)
    memory = mmap.mmap(-1, len(image.code), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    code = np.frombuffer(memory, np.uint8)
    code[:] = np.frombuffer(image.code, np.uint8)
    begin = code.__array_interface__["data"][0]

    bases = np.array([begin, id(environment), *map(_address, image.externals)], np.uint64)
    words = bases[np.frombuffer(image.bases, np.int64)]
    words += np.frombuffer(image.addends, np.uint64)
    places = np.frombuffer(image.places, np.int64)
    each = places[:, np.newaxis] + np.arange(_WORD_BYTES)
    code[each] = words.view(np.uint8).reshape(-1, _WORD_BYTES)

    if _libc().mprotect(ctypes.c_void_p(begin), len(memory), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory must not be executed")
    # A thread may be inside the code while the interpreter ends: it is never unmapped.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    module = sys.modules[function.__module__]
    made: Callable[..., Any] = bind.make_function(
        module, function.__name__, "", begin + image.entry, environment, (memory, environment)
    )
    return made


@cache
def _address(name: str) -> int:
    """Where a name of object code leads, as numba.core.base tells LLVM. LookupError: nowhere."""
    if name.startswith("numba_"):
        return int(_helpers("_helperlib")[name.removeprefix("numba_")])
    if name.startswith("NRT_"):
        return int(_runtime()[name.removeprefix("NRT_")])
    if name.startswith("PyExc_"):
        return id(vars(builtins)[name.removeprefix("PyExc_")])
    for library in (ctypes.pythonapi, _libc()):
        with contextlib.suppress(ValueError):
            return ctypes.addressof(ctypes.c_byte.in_dll(library, name))
    raise LookupError(name)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _numba_folder() -> str:
    """Where numba lies, without importing it. LookupError when it does not."""
    spec = find_spec("numba")
    if spec is None or not spec.origin:
        raise LookupError("numba")
    return os.path.dirname(spec.origin)


def _numba_version() -> str:
    with open(os.path.join(_numba_folder(), "_version.py")) as file:
        return file.read()


def _helpers(name: str) -> dict[str, int]:
    helpers: dict[str, int] = _extension(name).c_helpers
    return helpers


@cache
def _runtime() -> dict[str, int]:
    """The functions of numba's memory management, set up as numba does it."""
    _extension("core.runtime._nrt_python").memsys_use_cpython_allocator()
    return _helpers("core.runtime._nrt_python")


@cache
def _extension(name: str) -> Any:
    """An extension module of numba's, without the package around it. ImportError."""
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
