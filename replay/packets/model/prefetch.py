"""A hint to the processor: a row will be needed soon."""

from __future__ import annotations

from typing import Any

from ....kernels.kernel import FromNumba


def _intrinsic() -> Any:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def fetch(typingctx: Any, array: Any, row: Any, column: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = context.make_array(signature.args[0])(context, builder, arguments[0])
            columns = builder.extract_value(value.shape, 1)
            at = builder.gep(
                value.data, [builder.add(builder.mul(arguments[1], columns), arguments[2])]
            )
            pointer = builder.bitcast(at, ir.IntType(8).as_pointer())
            flag = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
            declare: Any = cgutils.get_or_insert_function
            hint = declare(builder.module, kind, "llvm.prefetch.p0")
            builder.call(hint, [pointer, flag(1), flag(3), flag(1)])  # to write, keep, data
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), generate

    return intrinsic(fetch)


prefetch: Any = FromNumba(_intrinsic)
"""prefetch(array, row, column): fetch the cache line of array[row, column] of a C-contiguous array
of two dimensions. Only a hint: it reads nothing, so every address is safe."""
