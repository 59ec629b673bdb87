"""Declares hot loops and their records, and calls machine code: of a library, or of numba."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from . import LibraryError
from .cache import BOUNDS_CHECK, module_digest
from .libraries import PACKAGED, Library, Shape, of_wheel, room_of, shape_of, symbol_of, text_of

# NamedTuple without checks of annotations.
#
# typing.NamedTuple compiles every annotation; for the wide tuples of arrays of kernels this takes a
# tenth of the start-up time. The resulting class is otherwise the same.

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Declaration(type):
        """Turns a class statement with the base NamedTuple into a namedtuple."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key != "__module__":
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Declaration):
        """Base of a class statement whose annotations are the fields of a tuple."""


# Types for the records of structured arrays in kernels: fields by name.


class Record:
    """One element of a structured array inside a kernel; one subclass per dtype.

    It has no instances: it lets mypy distinguish the records of different arrays.
    """

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None: ...


RecordArray: TypeAlias = Any
"""A structured array with elements as records in kernels; numpy's types treat them as arrays."""


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

Signature: TypeAlias = Callable[[], Any]
"""Makes the numba signature of a function. It is called only to compile: signatures need numba."""


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL.

    Arguments are arrays, scalars and tuples of them; results are scalars or one tuple of scalars.
    It allocates no arrays: whoever calls it makes them (`allocating`).
    """
    return cast(F, Kernel(function))


subkernel = kernel
"""Like `kernel`, for functions that are mainly called by kernels."""


def allocating(function: F) -> F:
    """Like `kernel`, for the few that make arrays of their own, for example to sort."""
    return cast(F, Kernel(function, allocates=True))


def inlined(function: F) -> F:
    """Like `subkernel`, for helpers that LLVM should inline into their callers.

    Small ones, and those that a hot loop calls with a tuple of many arrays: a call passes seven
    words for each array, which takes longer than the work of most helpers.
    """
    return cast(F, Kernel(function, forceinline=True))


def callback(signature: Signature) -> Callable[[Callable[..., Any]], Callable[[], int]]:
    """Declare a function that kernels call by its address (`function_at`).

    The returned function loads or compiles it on the first call and returns the address. A kernel
    takes any function of that signature without recompilation.
    """

    def declared(function: Callable[..., Any]) -> Callable[[], int]:
        made = Kernel(function)

        def address() -> int:
            return made.address(signature)

        address.kernel = made  # type: ignore[attr-defined]
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
        from .jit import function_at

        return function_at(signature())

    return FromNumba(make, signature)


class FromNumba:
    """Something inside kernels that only numba has, made when it compiles a kernel that uses it.

    make: returns a function of numba, or one with numba's decorator `intrinsic`.
    """

    def __init__(self, make: Callable[[], Any], source: Callable[[], Any] | None = None) -> None:
        """source: the function whose file decides with what machine code is up to date."""
        self._make = make
        self.__wrapped__ = source or make

    def __call__(self, *arguments: Any) -> Any:
        """Never called: for type checkers, which see calls inside kernels."""
        raise NotImplementedError

    @property
    def _numba_type_(self) -> Any:
        """Numba reads this attribute when it compiles a kernel."""
        return self._type()

    @cache  # noqa: B019 - one for each function of a module
    def _type(self) -> Any:
        from .jit import type_of

        return type_of(self._make())


compiling: list[str] = []
"""Kernels that are being compiled or loaded now, for progress."""


@contextmanager
def _noted_as_compiling(name: str) -> Iterator[None]:
    compiling.append(name)
    try:
        yield
    finally:
        compiling.remove(name)


RECORD = "ROCESCOPE_RECORD_KERNELS"
"""The environment variable with the folder where calls that no library holds are noted."""

_OPEN: dict[str, Library] = {}
"""Libraries of a checkout, by room."""


class Kernel:
    """A function that runs as machine code.

    A library holds the code for the recorded types of arguments (`calls`). Numba is imported only
    in a checkout, for calls without code in a library.
    """

    def __init__(
        self, function: Callable[..., Any], forceinline: bool = False, allocates: bool = False
    ) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.forceinline, self.allocates = forceinline, allocates
        self.digest = "" if PACKAGED else module_digest(function)  # before its names change
        self._calls: dict[Shape, Callable[..., Any]] = {}
        self._addresses: dict[Signature, int] = {}
        self._dispatchers: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        shape = shape_of(arguments)
        call = self._calls.get(shape)
        if call is None:
            call = self._calls[shape] = self._find(shape, arguments)
        return call(*arguments)

    def _find(self, shape: Shape, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        with _noted_as_compiling(self.__name__):
            try:
                text = text_of(shape)
            except TypeError:
                if PACKAGED:
                    raise
                return self.compiled  # tests call helpers with records, which numba takes
            found = self._library()
            if found is not None:
                try:
                    entry = found.entry(symbol_of(self.__wrapped__, text), shape)
                except ValueError:
                    if PACKAGED:
                        raise
                    entry = None  # a kernel that does not write is to be recorded with `ro`
                if entry is not None:
                    return entry
            self._note(arguments)
            return self.compiled

    def address(self, signature: Signature) -> int:
        """The address of the function for this signature."""
        address = self._addresses.get(signature)
        if address is None:
            address = self._addresses[signature] = self._find_address(signature)
        return address

    def _find_address(self, signature: Signature) -> int:
        with _noted_as_compiling(self.__name__):
            found = self._library()
            if found is not None:
                text = f"{signature.__module__}:{signature.__qualname__}"
                address = found.address(symbol_of(self.__wrapped__, text))
                if address is not None:
                    return address
            self._note(signature)
            from .jit import address_of

            return address_of(self, signature())

    def _library(self) -> Library | None:
        """The library with its code, built if necessary. None: numba compiles the kernel."""
        room = room_of(self.__wrapped__.__module__)
        if room is None or BOUNDS_CHECK:
            return None
        if PACKAGED:
            return of_wheel(room)
        found = _OPEN.get(room)
        if found is None or not found.is_fresh(self):
            from .build import built

            found = built(room, self)
            if found is not None:
                _OPEN[room] = found
        return found

    def _note(self, types: Any) -> None:
        """Note a call that no library holds; types: arguments, or the function of a signature."""
        if PACKAGED:
            raise LibraryError(f"no library holds {self.__name__} for such arguments: report this")
        folder, room = os.environ.get(RECORD), room_of(self.__wrapped__.__module__)
        if folder and room is not None and not BOUNDS_CHECK:
            from .calls import write_note

            write_note(folder, room, self, types)

    @property
    def compiled(self) -> Callable[..., Any]:
        """The numba dispatcher of the function."""
        if not self._dispatchers:
            from . import jit

            self._dispatchers.append(jit.make_dispatcher(self))
        return cast(Callable[..., Any], self._dispatchers[0])

    @property
    def _numba_type_(self) -> Any:
        """Numba reads this attribute when a kernel calls another one."""
        return cast(Any, self.compiled)._numba_type_


prefetch_item: Any = FromNumba(lambda: _prefetch())
"""prefetch_item(array, index): fetch the cache line of array[index], which may be out of range, to
write it; of `records.field` that of a field."""


def _prefetch() -> Any:
    from .jit import prefetch

    return prefetch()
