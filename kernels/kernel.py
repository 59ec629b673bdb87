"""How hot loops are compiled, and where the machine code is kept for the next run."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from . import image as machine_code
from .cache import BOUNDS_CHECK, cache_base, digest_of, key_of, module_digest
from .shape import Shape, shape_of, text_of

F = TypeVar("F", bound=Callable[..., Any])

Int: TypeAlias = int | np.integer[Any]
"""An integer inside a kernel, Python's or numpy's: numba infers which."""
Bool: TypeAlias = bool | np.bool_
"""A truth value inside a kernel."""

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": BOUNDS_CHECK}

# A helper owns no memory. Without numba's runtime it touches no array's reference count;
# with it, handing on a tuple of arrays costs two locked instructions per array and call,
# more than most helpers take for their work.
_HELPER: dict[str, Any] = {"_nrt": False, **_OPTIONS}

# A helper inside another kernel becomes part of that one's machine code: none of its own, and no
# entry from Python. That takes a third less time to compile.
_WITHIN: dict[str, Any] = {"cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_POINTED: dict[str, Any] = {"cache": True, "boundscheck": BOUNDS_CHECK, "_nrt": False}


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL and is cached on disk."""
    return cast(F, Kernel(function, _OPTIONS))


def subkernel(function: F) -> F:
    """Like `kernel`, for what allocates no arrays: above all what kernels call, again and again."""
    return cast(F, Kernel(function, _HELPER))


def inlined(function: F) -> F:
    """Like `subkernel`, for small helpers that LLVM should inline into their callers."""
    return cast(F, Kernel(function, {"forceinline": True, **_HELPER}))


def callback(signature: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Declare a function that kernels call by pointer, of a fixed numba signature.

    What it returns compiles it on the first call (or loads it), and gives the pointer: kernels
    take any function of that signature as an argument without being compiled anew.
    """

    def declared(function: Callable[..., Any]) -> Callable[[], Any]:
        module = module_digest(function)

        @cache
        def pointer() -> Any:
            folder = _folder_of(function, module)
            with _alone(folder):
                from .numba_side import pointer_to

                return pointer_to(function, signature, _POINTED, folder)

        return pointer

    return declared


def _folder_of(function: Callable[..., Any], module: bytes) -> str | None:
    """The folder for a function's machine code; None where none can be kept."""
    base = cache_base()
    return base and os.path.join(base, key_of(function, module))


_PATIENCE_S = 180.0
"""Longest wait for another process that compiles the same kernel: minutes on a busy machine."""


def _alone(folder: str | None) -> AbstractContextManager[bool]:
    """One process fills the folder of a kernel, so that the others find the machine code there.

    Taken before the lock of numba's compiler, never within: two threads would wait for each other.
    """
    from .file_lock import process_lock

    if folder is None:
        return nullcontext(False)
    return process_lock(os.path.join(folder, "lock"), _PATIENCE_S)


def worth_compiling_elsewhere(function: Callable[..., Any]) -> bool:
    """Whether a kernel was never compiled here, and another process can leave it for this one."""
    folder = cast(Kernel, function).folder
    return folder is not None and not os.path.isdir(folder)


compiling: list[str] = []
"""Kernels that are being compiled now, or loaded from where numba keeps them: for progress."""


class Kernel:
    """A function that is machine code when it is called, from the cache if possible.

    Numba is imported only where the cache has nothing for a call.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._options = options
        self._module = module_digest(function)  # before anybody changes the module's names
        self._calls: dict[Shape, Callable[..., Any]] = {}
        self._dispatchers: dict[bool, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        shape = shape_of(arguments)
        call = self._calls.get(shape)
        if call is None:
            call = self._calls[shape] = self._find(shape, arguments)
        return call(*arguments)

    def _find(self, shape: Shape, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        path = self._image_path(shape)
        found = machine_code.load(path, self.__wrapped__) if path else None
        if found is not None:
            return found
        compiling.append(self.__name__)
        try:
            with _alone(self.folder):
                found = machine_code.load(path, self.__wrapped__) if path else None
                if found is not None:  # made by the process that had the lock
                    return found
                from .numba_side import compiled_for

                return compiled_for(self.compiled, arguments, path)
        finally:
            compiling.remove(self.__name__)

    def _image_path(self, shape: Shape) -> str | None:
        """Where the machine code for such a call is kept; None when it cannot be."""
        with suppress(Exception):  # whatever is wrong, numba does without an image
            text = text_of(shape)
            if text is not None and self.folder is not None and machine_code.usable():
                name = digest_of(f"{machine_code.host()} {text}".encode())
                return os.path.join(self.folder, f"{name}.code")
        return None

    @cached_property
    def folder(self) -> str | None:
        """Where its machine code is kept, once there is any; None where none can be."""
        return _folder_of(self.__wrapped__, self._module)

    @property
    def compiled(self) -> Any:
        """The function as numba knows it."""
        return self._dispatcher(within=False)

    @property
    def _numba_type_(self) -> Any:
        """Numba asks for this when a kernel occurs in another one."""
        return self._dispatcher(within="_nrt" in self._options)._numba_type_

    def _dispatcher(self, within: bool) -> Any:
        found = self._dispatchers.get(within)
        if found is None:
            from .numba_side import compiler_lock, dispatcher

            options = self._options | _WITHIN if within else self._options
            # No lock of its own (cached_property has one): who compiles asks for this in the
            # middle of it, and would wait for who has it and waits for the compiler.
            with compiler_lock:
                found = self._dispatchers.get(within)
                if found is None:
                    found = dispatcher(self.__wrapped__, options, self.folder)
                    self._dispatchers[within] = found
        return found
