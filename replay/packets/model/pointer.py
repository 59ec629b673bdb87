"""Compiled functions as arguments: a kernel is compiled once for all functions it may call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from numba import types

F = TypeVar("F", bound=Callable[..., Any])


class _Pointer(types.WrapperAddressProtocol):  # type: ignore[misc, unused-ignore]
    """For numba a function of this signature, compiled at its first use."""

    def __init__(self, function: Any, signature: Any) -> None:
        import numba.experimental.function_type  # noqa: F401 - teaches numba to type pointers

        self._function = function
        self._signature = signature
        self._address = 0

    def __wrapper_address__(self) -> int:
        if not self._address:
            compiled = self._function.compiled.get_compile_result(self._signature)
            name = compiled.fndesc.llvm_cfunc_wrapper_name
            self._address = compiled.library.get_pointer_to_function(name)
        return self._address

    def signature(self) -> Any:
        return self._signature


def pointer_to(function: F, signature: Any) -> F:
    """A `subkernel` that kernels call by its address, with this numba signature.

    Kernels can also call the same function directly, unlike functions of `kernel.callback`.
    """
    return cast(F, _pointer(function, signature))


@cache
def _pointer(function: Any, signature: Any) -> _Pointer:
    """Cached: the lookup of an address takes milliseconds, as long as thousands of packets."""
    return _Pointer(function, signature)
