"""Compiles kernels with numba; only imported when the cache has no machine code."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types
from numba.core import caching, cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.extending import intrinsic

from . import image as machine_code
from .cache import cache_base, read_own, remove_foreign, remove_unused
from .image import Image

compiler_lock: Any = global_compiler_lock
"""Numba's own lock: one thread compiles at a time."""

_NumbaFiles: Any = caching.IndexDataCacheFile
_NumbaCode: Any = JITCodeLibrary
_NumbaCompiler: Any = Compiler

_base = cache_base()
if _base is not None:
    remove_unused(_base)


def dispatcher(function: Callable[..., Any], options: dict[str, Any], folder: str | None) -> Any:
    """The numba dispatcher of a function; numba's own cache is in `folder`, if any."""
    if folder is not None:
        with contextlib.suppress(OSError, RuntimeError):  # numba: no folder that it can write to
            compiled = _with_cache(function, numba.njit(**options), folder)
            _load_at_once(compiled)
            return compiled
    return numba.njit(**options | {"cache": False})(function)


def helper(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """The numba dispatcher of a function that only other kernels call."""
    return numba.njit(pipeline_class=_HelperCompiler, **options)(function)


class _HelperCompiler(_NumbaCompiler):  # type: ignore[misc]
    """Compiles a function to code for linking."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _Linked(target.codegen(), "helper"), *rest)


class _Linked(_NumbaCode):  # type: ignore[misc]
    """Code of a helper. Numba would optimise it and make machine code of it, and then optimise it
    again in each kernel that it is linked into; here only the kernel does, in half the time."""

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Numba sets the environment of machine code by it: here the kernel's (`_bind`)."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing yet: without machine code there is no place for it."""


def type_of(function: Any) -> Any:
    """The type by which kernels call one of numba's functions."""
    context = cpu_target.typing_context
    context.refresh()  # an intrinsic may be new
    return context.resolve_value_type(function)


def function_at(signature: Any) -> Any:
    """An intrinsic that makes a function of an address."""
    import numba.experimental.function_type  # noqa: F401 - teaches numba such types

    kind = types.FunctionType(signature)

    def at(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            tools: Any = cgutils
            made = tools.create_struct_proxy(kind)(context, builder)
            pointer = made.c_addr.type
            made.c_addr = builder.inttoptr(arguments[0], pointer)
            made.py_addr = made.jit_addr = tools.get_null_value(pointer)
            return made._getvalue()

        return kind(types.int64), generate

    return intrinsic(at)


def address_for(compiled: Any, signature: Any, path: str | None) -> int:
    """The address of the machine code for a signature; an image is stored at `path`."""
    compiled.compile(signature)
    result = compiled.overloads[signature.args]
    _bind(result)
    name = result.fndesc.llvm_cfunc_wrapper_name
    if path is not None:
        with contextlib.suppress(Exception):  # an error in numba's internals: no image
            machine_code.save(_image(compiled, signature.args, signature, name), path)
    address: int = result.library.get_pointer_to_function(name)
    return address


def _with_cache(function: Callable[..., Any], compiler: Callable[..., Any], folder: str) -> Any:
    # Numba reads the folder from its configuration when the function is decorated: one thread at a
    # time, with the lock that compiling also takes, to avoid a deadlock.
    config: Any = numba.config
    files: Any = caching
    with compiler_lock:
        before = config.CACHE_DIR
        config.CACHE_DIR, files.IndexDataCacheFile = folder, _OwnFiles
        try:
            return compiler(function)
        finally:
            config.CACHE_DIR, files.IndexDataCacheFile = before, _NumbaFiles


class _OwnFiles(_NumbaFiles):  # type: ignore[misc]
    """Numba's index and data files, read only if no other user can write to them."""

    def __init__(self, cache_path: str, *rest: Any, **more: Any) -> None:
        if os.lstat(cache_path).st_uid == os.geteuid():
            os.chmod(cache_path, 0o700)  # made by numba just now, with the umask
        remove_foreign(cache_path)
        os.makedirs(cache_path, 0o700, exist_ok=True)
        super().__init__(cache_path, *rest, **more)

    def _load_index(self) -> Any:
        with contextlib.suppress(FileNotFoundError):
            file = io.BytesIO(read_own(self._index_path))
            if pickle.load(file) == self._version:
                stamp, overloads = pickle.load(file)
                return overloads if stamp == self._source_stamp else {}
        return {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(read_own(self._data_path(name)))

    @contextlib.contextmanager
    def _open_for_write(self, path: str) -> Iterator[Any]:
        with super()._open_for_write(path) as file:
            os.fchmod(file.fileno(), 0o600)
            yield file


def compiled_for(compiled: Any, arguments: tuple[Any, ...], path: str | None) -> Callable[..., Any]:
    """The machine code for the types of these arguments, from numba's cache or compiled.

    It is stored as an image at `path` for the next process, if possible.
    """
    kinds = tuple(compiled.typeof_pyval(argument) for argument in arguments)
    entry: Callable[..., Any] = compiled.compile(kinds)
    _bind(compiled.overloads[kinds])
    if path is None:
        function: Callable[..., Any] = compiled
        return function
    with contextlib.suppress(Exception):  # an error in numba's internals: no image
        name = compiled.overloads[kinds].fndesc.llvm_cpython_wrapper_name
        machine_code.save(_image(compiled, kinds, kinds, name), path)
    return entry


def _environments(result: Any) -> set[Any]:
    """Of a kernel and of all helpers in its code."""
    environments = result.referenced_envs
    if environments is None:
        environments = result._find_referenced_environments()
    return {*environments, result.environment}


def _bind(result: Any) -> None:
    """Set the environments of helpers in the machine code of a kernel."""
    for environment in _environments(result):
        result.library.codegen.set_env(environment.env_name, environment)


def _image(compiled: Any, kinds: tuple[Any, ...], key: Any, entry: str) -> Image:
    """The image of the code compiled for these types, by the symbol `entry`; key: by which numba
    stores it. ValueError: no image is possible."""
    result = compiled.overloads[kinds]
    environments = _environments(result)
    if result.reload_init or any(environment.consts for environment in environments):
        raise ValueError("it refers to objects of this process")
    library = result.library
    code = library._compiled_object
    if code is None:  # loaded, so it is already in numba's cache
        store = compiled._cache
        code = store._cache_file.load(store._index_key(key, library.codegen))[0][2][0]
    externals = {name.decode() for name in re.findall(rb"\b(?:numba|NRT|PyExc)_\w+", code)}
    return Image(
        code,
        entry,
        tuple(externals),
        tuple(environment.env_name for environment in environments),
    )


def _load_at_once(compiled: Any) -> None:
    """Load cached machine code without the parts that only the compiler needs.

    Numba prepares its compiler before it reads the cache, which takes longer than a small analysis.
    Code that cannot be loaded for any reason is recompiled; code that cannot be stored is compiled
    every time.
    """
    store = getattr(compiled, "_cache", None)
    load = getattr(store, "_load_overload", None)
    if store is None or load is None:
        return
    save = store.save_overload

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            rtsys.initialize(context)  # numba's runtime, which the loaded code may call
            overload = load(signature, context)
        except Exception:
            overload = None
            with contextlib.suppress(Exception):
                store.flush()  # a damaged index also prevents numba from storing
        if overload is None:
            context.refresh()
        return overload

    def save_overload(signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):
            save(signature, data)

    store.load_overload = load_overload
    store.save_overload = save_overload
