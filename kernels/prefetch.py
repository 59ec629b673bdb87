"""A hint to the processor, inside kernels: an item will be needed soon."""

from __future__ import annotations

from typing import Any

from .kernel import FromNumba


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
