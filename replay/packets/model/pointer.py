"""Compiled functions as arguments: kernels that take them are compiled once for all of them."""

from __future__ import annotations

from typing import Any

from numba import types


class Pointer(types.WrapperAddressProtocol):  # type: ignore[misc, unused-ignore]
    """A `subkernel` of a fixed numba signature that kernels call by its address.

    Kernels can call the same function directly too, unlike those of `kernel.callback`.
    """

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
