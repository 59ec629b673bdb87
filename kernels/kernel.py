"""Declares a hot loop: compiled once, cached, and loaded without the compiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from . import image as machine_code
from .cache import BOUNDS_CHECK, cache_base, digest_of, key_of, module_digest, remove_foreign
from .image import Shape, shape_of, text_of

F = TypeVar("F", bound=Callable[..., Any])

Int: TypeAlias = int | np.integer[Any]
"""An integer inside a kernel, of Python or numpy: numba infers the type."""
Bool: TypeAlias = bool | np.bool_
"""A truth value inside a kernel."""

Ints: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.uint8]
UInt16s: TypeAlias = NDArray[np.uint16]
UInt32s: TypeAlias = NDArray[np.uint32]
UInt64s: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Records: TypeAlias = NDArray[np.void]
Array: TypeAlias = NDArray[Any]
"""Arrays, inside kernels and out; whoever makes one says its shape."""

# Kernels are called from Python or by other kernels: without an entry from C, which takes time to
# compile.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "boundscheck": BOUNDS_CHECK,
    "no_cfunc_wrapper": True,
}

# A helper owns no memory. Without numba's runtime it changes no reference count of an array; with
# it, passing a tuple of arrays costs two locked instructions per array and call, more than the work
# of most helpers.
_HELPER: dict[str, Any] = {"_nrt": False, **_OPTIONS}

# A helper inside another kernel becomes part of its machine code, without machine code of its own
# and without an entry from Python. That takes half of the time to compile.
_WITHIN: dict[str, Any] = {"cache": False, "no_cpython_wrapper": True}
_POINTED: dict[str, Any] = {"cache": True, "boundscheck": BOUNDS_CHECK, "_nrt": False}

Signature: TypeAlias = Callable[[], Any]
"""Makes the numba signature of a function. It is called only to compile: signatures need numba."""


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL and is cached on disk."""
    return cast(F, Kernel(function, _OPTIONS))


def subkernel(function: F) -> F:
    """Like `kernel`, for functions that allocate no arrays, mainly helpers called by kernels."""
    return cast(F, Kernel(function, _HELPER))


def inlined(function: F) -> F:
    """Like `subkernel`, for helpers that LLVM should inline into their callers.

    Small ones, and those that a hot loop calls with a tuple of many arrays: a call passes seven
    words for each array, which takes longer than the work of most helpers.
    """
    return cast(F, Kernel(function, {"forceinline": True, **_HELPER}))


def callback(signature: Signature) -> Callable[[Callable[..., Any]], Callable[[], int]]:
    """Declare a function that kernels call by its address (`function_at`).

    The returned function compiles or loads it on the first call and returns the address. A kernel
    takes any function of that signature without recompilation.
    """

    def declared(function: Callable[..., Any]) -> Callable[[], int]:
        module = module_digest(function)

        @cache
        def address() -> int:
            return _address(function, module, signature)

        return address

    return declared


def pointer_to(function: Callable[..., Any], signature: Signature) -> int:
    """The address of a `subkernel` for `function_at`.

    Kernels can also call the same function directly, unlike those of `callback`.
    """
    return cast(Kernel, function).address(signature)


def function_at(signature: Signature) -> Any:
    """Inside kernels: makes a function of the address of one with this signature."""

    def make() -> Any:
        from .numba_side import function_at

        return function_at(signature())

    return FromNumba(make, signature)


def _address(function: Callable[..., Any], module: bytes, signature: Signature) -> int:
    """The address of the machine code of a function, from the cache or compiled."""
    # The file of the signature counts: it says which records the function reads.
    folder = _folder_of(function, module + module_digest(signature) + b" by address")
    path = None
    with suppress(Exception):  # as in `Kernel._image_path`
        if folder is not None and machine_code.usable():
            path = os.path.join(folder, f"{digest_of(machine_code.host().encode())}.code")
    address = machine_code.load_address(path, function) if path else None
    if address is not None:
        return address
    with _alone(folder):
        address = machine_code.load_address(path, function) if path else None
        if address is not None:
            return address
        from .numba_side import address_for, dispatcher

        compiling.append(function.__name__)
        try:
            return address_for(dispatcher(function, _POINTED, folder), signature(), path)
        finally:
            compiling.remove(function.__name__)


class FromNumba:
    """Something inside kernels that only numba has, made when it compiles a kernel that uses it.

    Numba is not imported for kernels from the cache. make: returns a function of numba, or one
    with numba's decorator `intrinsic`.
    """

    def __init__(self, make: Callable[[], Any], source: Callable[[], Any] | None = None) -> None:
        """source: the function whose file decides with what machine code is cached."""
        self._make = make
        self.__wrapped__ = source or make
        self._type: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Never called: for type checkers, which see calls inside kernels."""
        raise NotImplementedError

    @property
    def _numba_type_(self) -> Any:
        """Numba reads this attribute when it compiles a kernel."""
        if self._type is None:
            from .numba_side import type_of

            self._type = type_of(self._make())
        return self._type


def _folder_of(function: Callable[..., Any], module: bytes) -> str | None:
    """The folder for a function's machine code; None when it cannot be stored."""
    base = cache_base()
    if base is not None:
        folder = os.path.join(base, key_of(function, module))
        with suppress(OSError):
            remove_foreign(folder)
            return folder
    return None


_PATIENCE_S = 180.0
"""Longest wait for another process that compiles the same kernel: minutes on a busy machine."""


def _alone(folder: str | None) -> AbstractContextManager[bool]:
    """Held by the process that fills the folder of a kernel; the others then find the machine code.
    Acquired before the lock of numba's compiler, never while holding it, to avoid a deadlock.
    """
    from .cache import process_lock

    if folder is None:
        return nullcontext(False)
    return process_lock(os.path.join(folder, "lock"), _PATIENCE_S)


def worth_compiling_elsewhere(function: Callable[..., Any]) -> bool:
    """Whether a kernel was never compiled here and another process can compile it for this one."""
    folder = cast(Kernel, function).folder
    return folder is not None and not os.path.isdir(folder)


compiling: list[str] = []
"""Kernels being compiled now or loaded from numba's cache, for progress."""


class Kernel:
    """A function that runs as machine code, from the cache if possible.

    Numba is imported only when the cache has no code for a call.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._options = options
        self._module = module_digest(function)  # before names of the module change
        self._calls: dict[Shape, Callable[..., Any]] = {}
        self._dispatchers: dict[bool, Any] = {}
        self._addresses: dict[Signature, int] = {}

    def address(self, signature: Signature) -> int:
        """The address of the function for this signature."""
        address = self._addresses.get(signature)
        if address is None:
            address = _address(self.__wrapped__, self._module, signature)
            self._addresses[signature] = address
        return address

    def __call__(self, *arguments: Any) -> Any:
        shape = shape_of(arguments)
        call = self._calls.get(shape)
        if call is None:
            call = self._calls[shape] = self._find(shape, arguments)
        return call(*arguments)

    def _find(self, shape: Shape, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        path = self._image_path(shape)
        loaded = machine_code.load(path, self.__wrapped__) if path else None
        if loaded is not None:
            return loaded
        compiling.append(self.__name__)
        try:
            with _alone(self.folder):
                loaded = machine_code.load(path, self.__wrapped__) if path else None
                if loaded is not None:  # compiled by the process that held the lock
                    return loaded
                from .numba_side import compiled_for

                return compiled_for(self.compiled, arguments, path)
        finally:
            compiling.remove(self.__name__)

    def _image_path(self, shape: Shape) -> str | None:
        """Path of the machine code for such a call; None when it cannot be stored."""
        with suppress(Exception):  # on any error numba works without an image
            text = text_of(shape)
            if text is not None and self.folder is not None and machine_code.usable():
                name = digest_of(f"{machine_code.host()} {text}".encode())
                return os.path.join(self.folder, f"{name}.code")
        return None

    @cached_property
    def folder(self) -> str | None:
        """Folder of its machine code, once it exists; None when it cannot be stored."""
        return _folder_of(self.__wrapped__, self._module)

    @property
    def compiled(self) -> Any:
        """The numba dispatcher of the function."""
        return self._dispatcher(within=False)

    @property
    def _numba_type_(self) -> Any:
        """Numba reads this attribute when a kernel calls another one."""
        return self._dispatcher(within="_nrt" in self._options)._numba_type_

    def _dispatcher(self, within: bool) -> Any:
        built = self._dispatchers.get(within)
        if built is None:
            from .numba_side import compiler_lock, dispatcher, helper

            # Without a lock (cached_property has one): the compiling thread reads this attribute,
            # and a thread that holds such a lock could wait for the compiler.
            with compiler_lock:
                built = self._dispatchers.get(within)
                if built is None:
                    if within:
                        built = helper(self.__wrapped__, self._options | _WITHIN)
                    else:
                        built = dispatcher(self.__wrapped__, self._options, self.folder)
                    self._dispatchers[within] = built
        return built


# A hint to the processor, inside kernels: an item will be needed soon.


def _hint(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Fetch the cache line of an item of an array to write it; it reads nothing."""
    from llvmlite import ir
    from numba.core import cgutils

    value = context.make_array(array_type)(context, builder, array)
    find: Any = cgutils.get_item_pointer
    item = find(context, builder, array_type, value, [index])
    pointer = builder.bitcast(item, ir.IntType(8).as_pointer())
    flag = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
    declare: Any = cgutils.get_or_insert_function
    hint = declare(builder.module, kind, "llvm.prefetch.p0")
    builder.call(hint, [pointer, flag(1), flag(3), flag(1)])  # to write, keep, data
    return context.get_dummy_value()


def _intrinsic() -> Any:
    from numba import types
    from numba.extending import intrinsic

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _hint(context, builder, signature.args[0], *arguments)

    def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
        return types.void(array, types.int64), generate

    return intrinsic(prefetch)


prefetch_item: Any = FromNumba(_intrinsic)
"""prefetch_item(array, index): fetch the cache line of array[index], which may be out of range; of
`records.field` that of a field."""
