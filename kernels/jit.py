"""Kernels as numba compiles them on their first call: in a checkout, for what no library holds."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from .cache import BOUNDS_CHECK, cache_base, remove_foreign, remove_unused
from .libraries import Declared, digest_of

_base = cache_base()
if _base is not None:
    remove_unused(_base)

_LOCK = threading.RLock()
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": BOUNDS_CHECK}


def dispatcher(kernel: Declared) -> Any:
    """The numba dispatcher of a kernel, with numba's own cache."""
    return _cached(kernel, lambda cache: numba.njit(cache=cache, **_OPTIONS)(kernel.__wrapped__))


make_dispatcher = dispatcher
"""How a kernel becomes something that numba calls; `compile` has its own way."""


def address_of(kernel: Declared, signature: Any) -> int:
    """The address of a kernel for `function_at`."""
    made = _cached(
        kernel, lambda cache: numba.cfunc(signature, cache=cache)(kernel.__wrapped__), signature
    )
    _KEPT.append(made)
    address: int = made.address
    return address


_KEPT: list[Any] = []
"""Functions whose addresses kernels have."""


def _cached(kernel: Declared, make: Any, how: Any = "") -> Any:
    """Numba compares only the file of a kernel; the digest covers helpers and constants, too."""
    if _base is not None:
        folder = os.path.join(_base, digest_of(f"{kernel.digest} {kernel.__name__} {how}".encode()))
        config: Any = numba.config
        with _LOCK, contextlib.suppress(OSError, RuntimeError):  # no folder to write to
            remove_foreign(folder)
            os.makedirs(folder, 0o700, exist_ok=True)  # numba's own folders are within it
            before, config.CACHE_DIR = config.CACHE_DIR, folder  # read by the declaration
            try:
                return make(True)
            finally:
                config.CACHE_DIR = before
    return make(False)


# What kernels use that only numba has.


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
            known = builder.icmp_unsigned("!=", arguments[0], arguments[0].type(0))
            builder.assume(known)  # numba asks Python for the address of a function at 0
            made.c_addr = builder.inttoptr(arguments[0], pointer)
            made.py_addr = made.jit_addr = tools.get_null_value(pointer)
            return made._getvalue()

        return kind(types.int64), generate

    return intrinsic(at)


def prefetch() -> Any:
    """The intrinsic of `prefetch_item`."""
    from llvmlite import ir

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, (array, index) = signature.args[0], arguments
        value = context.make_array(array_type)(context, builder, array)
        tools: Any = cgutils
        item = tools.get_item_pointer(context, builder, array_type, value, [index])
        pointer = builder.bitcast(item, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        hint = tools.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(hint, [pointer, flag(1), flag(3), flag(1)])  # to write, keep, data
        return context.get_dummy_value()

    def item(typingctx: Any, array: Any, index: Any) -> Any:
        return types.void(array, types.int64), generate

    return intrinsic(item)
