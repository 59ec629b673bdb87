"""Machine code of kernels as object files: numba's compiler, LLVM, and the entry from Python.

An entry is a C function that takes words of 8 bytes (`libraries`): first the address of the words
for the results. It returns 0, or 1 with the address and length of a pickled exception in the words.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from typing import Any, NamedTuple

import numba
from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import compiler
from numba.core.callconv import CPUCallConv
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig
from numba.np.arrayobj import populate_array

from . import calls, jit
from .libraries import Declared, shape_of, symbol_of, text_of, writeable

_njit: Any = numba.njit  # its types in numba are incomplete
_typeof: Any = numba.typeof
_compiler: Any = compiler
_populate: Any = populate_array
types: Any = numba.types
_CodeLibrary: Any = CPUCodeLibrary
_Compiler: Any = compiler.Compiler
_CallConv: Any = CPUCallConv
_WORD = ir.IntType(64)
_WORDS = _WORD.as_pointer()


@cache
def machine(level: str) -> Any:
    """LLVM's description of the processors of a level, such as x86-64-v2."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = level if level.startswith("x86-64") else "generic"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features="", opt=3, reloc="pic", codemodel="default"
    )


class Task(NamedTuple):
    """One function to compile."""

    room: str
    name: str
    """Of the kernel, in the file of its room."""
    call: int
    """Number of its recorded call; -1 for an address."""
    signature: str
    """For an address."""
    path: str
    """Of the object file."""
    weight: int
    """Grows with the time to compile it."""


class _Helper(_CodeLibrary):  # type: ignore[misc]
    """Code of a kernel within another one: only the outer one is optimised."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Left to the entry."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def _finalize_specific(self) -> None:
        """Nothing is executed here."""

    def get_pointer_to_function(self, name: str) -> int:
        """No address: nothing is executed here."""
        return 0

    @property
    def codegen(self) -> Any:
        """Numba sets the environment of machine code by it."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Without Python objects there is no environment."""


class _HelperCompiler(_Compiler):  # type: ignore[misc]
    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, library or _Helper(target.codegen(), "helper"), *rest)


class _Entry(_Helper):
    """The code of an entry and all kernels in it, optimised and emitted."""

    symbol = ""
    level = ""
    allocates = False
    emitted = b""

    def _optimize_final_module(self) -> None:
        module = self._final_module
        for function in module.functions:
            if not function.is_declaration:
                function.linkage = "external" if function.name == self.symbol else "internal"
        for variable in module.global_variables:
            if not variable.is_declaration and variable.name != f"{self.symbol}_types":
                variable.linkage = "internal"
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        tuning.loop_vectorization = True
        tuning.slp_vectorization = False
        builder = llvm.create_pass_builder(machine(self.level), tuning)
        passes = builder.getModulePassManager()
        if self.allocates:
            passes.add_refprune_pass()
        passes.run(module, builder)
        self.emitted = machine(self.level).emit_object(module)


def _without_place(self: Any, exc: Any, exc_args: Any, loc: Any, func_name: Any) -> Any:
    """What a raised exception is made of: no path of the machine that compiled it."""
    return exc, exc_args, None


_CallConv.build_excinfo_struct = _without_place


def _equal_flags(self: Any, other: Any) -> Any:
    """Numba compares flags at every call of its own functions: first those that are set."""
    same = isinstance(other, TargetConfig) and self._values == other._values
    return same or _compare_flags(self, other)


_Flags: Any = TargetConfig
_compare_flags: Any = _Flags.__eq__
_Flags.__eq__ = _equal_flags
_Flags.__hash__ = lambda self: 0  # in keys beside types, which tell most of them apart


def helper_dispatcher(kernel: Declared) -> Any:
    """The numba dispatcher by which other kernels call this one."""
    made = _njit(
        _nrt=kernel.allocates,
        forceinline=kernel.forceinline,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        pipeline_class=_HelperCompiler,
    )(kernel.__wrapped__)
    template = made.get_call_template

    def one_for_all_literals(arguments: Any, keywords: Any) -> Any:
        """Numba would compile a helper anew for each constant that it is called with."""
        return template([types.unliteral(kind) for kind in arguments], keywords)

    made.get_call_template = one_for_all_literals
    return made


def compile_task(work: tuple[Task, str]) -> str | None:
    """Write the object file of a task; what is wrong with the kernel if numba cannot compile it."""
    try:
        _compile(*work)
    except NumbaError as error:
        return f"{work[0].name}: {error}"
    return None


def _compile(task: Task, level: str) -> None:
    gc.disable()  # numba makes millions of objects that stay: a seventh of the time
    kernel = calls.function(task.room, task.name)
    if task.signature:
        signature = calls.found(task.signature)()
        symbol = symbol_of(kernel.__wrapped__, f"{calls.PREFIX}{task.signature}")
        code = _object(kernel, signature.args, symbol, level, None)
    else:
        arguments = calls.samples(task.room, task.name)[task.call] or ()
        shape = shape_of(arguments)
        kinds = tuple(_typeof(argument) for argument in arguments)
        taken = "".join("w" if can_write else "r" for can_write in writeable(shape))
        symbol = symbol_of(kernel.__wrapped__, text_of(shape))
        code = _object(kernel, kinds, symbol, level, taken)
    temporary = f"{task.path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(code)
    os.replace(temporary, task.path)


def _object(kernel: Declared, kinds: Any, symbol: str, level: str, taken: str | None) -> bytes:
    """The object file of a kernel; taken: which arrays it may write to, None for an address."""
    jit.make_dispatcher = helper_dispatcher
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    flags: Any = _compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.nrt = kernel.allocates
    flags.forceinline = kernel.forceinline
    library = _Entry(target.codegen(), symbol)
    library.symbol, library.level, library.allocates = symbol, level, kernel.allocates
    with global_compiler_lock:
        function: Any = kernel.__wrapped__
        made = _compiler.compile_extra(typing, target, function, kinds, None, flags, {}, library)
        results = made.signature.return_type
        module = target.create_module(symbol)
        callee = ir.Function(
            module,
            target.call_conv.get_function_type(results, kinds),
            made.fndesc.llvm_func_name,
        )
        if taken is None:
            _add_c_function(target, module, callee, symbol, kinds, results)
        else:
            _add_entry(target, module, callee, symbol, kinds, results)
            _add_text(module, f"{symbol}_types", f"{_formats(results)} {taken}")
        library.add_ir_module(module)
        library.finalize()
    return library.emitted


def _add_entry(
    target: Any, module: Any, callee: Any, symbol: str, kinds: Any, results: Any
) -> None:
    entry = ir.Function(module, ir.FunctionType(_WORD, [_WORDS]), symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    position = iter(range(1 << 30))

    def word() -> Any:
        return builder.load(builder.gep(entry.args[0], [_WORD(next(position))]))

    def value(kind: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            return target.make_tuple(builder, kind, [value(item) for item in kind])
        if isinstance(kind, types.Array):
            return _array_at(target, builder, kind, word())
        if isinstance(kind, types.NoneType):
            return target.get_dummy_value()
        return _scalar(builder, kind, word())

    out = builder.inttoptr(word(), _WORDS)
    values: dict[int, Any] = {}
    for tuples in (False, True):  # the words of tuples are after all others
        for k, kind in enumerate(kinds):
            if isinstance(kind, types.BaseTuple) == tuples:
                values[k] = value(kind)
    arguments = [values[k] for k in range(len(kinds))]
    status, result = target.call_conv.call_function(builder, callee, results, kinds, arguments)
    with builder.if_then(status.is_error, likely=False):
        raised = builder.load(status.excinfoptr)
        for k in range(2):
            part = builder.extract_value(raised, k)
            part = builder.zext(part, _WORD) if k else builder.ptrtoint(part, _WORD)
            builder.store(part, builder.gep(out, [_WORD(k)]))
        builder.ret(_WORD(1))
    for k, kind in enumerate(_items(results)):
        item = builder.extract_value(result, k) if isinstance(results, types.BaseTuple) else result
        builder.store(_as_word(builder, kind, item), builder.gep(out, [_WORD(k)]))
    builder.ret(_WORD(0))


def _array_at(target: Any, builder: Any, kind: Any, word: Any) -> Any:
    """The array whose Python object is at an address."""
    fields = array_fields(builder, word, kind.ndim)
    made = target.make_array(kind)(target, builder)
    item = target.get_abi_sizeof(target.get_data_type(kind.dtype))
    _populate(
        made,
        data=builder.inttoptr(fields[0], made.data.type),
        shape=fields[1 : 1 + kind.ndim],
        strides=fields[1 + kind.ndim :],
        itemsize=_WORD(item),
        meminfo=None,
    )
    return made._getvalue()


def array_fields(builder: Any, word: Any, ndim: int) -> list[Any]:
    """data, dimensions and strides of the `PyArrayObject` at an address (numpy's C API).

    Its first 16 bytes are those of any object of Python, then follow data, nd, dimensions, strides.
    """

    def words(address: Any, numbers: Any) -> list[Any]:
        pointer = builder.inttoptr(address, _WORDS)
        return [builder.load(builder.gep(pointer, [_WORD(n)])) for n in numbers]

    data, dimensions, strides = words(word, (2, 4, 5))
    return [data, *words(dimensions, range(ndim)), *words(strides, range(ndim))]


def _scalar(builder: Any, kind: Any, word: Any) -> Any:
    if isinstance(kind, types.Boolean):
        return builder.icmp_unsigned("!=", builder.and_(word, _WORD(1)), _WORD(0))
    if isinstance(kind, types.Integer):
        return builder.trunc(word, ir.IntType(kind.bitwidth)) if kind.bitwidth < 64 else word
    return builder.bitcast(word, ir.DoubleType())


def _as_word(builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Boolean):
        return builder.zext(value, _WORD)
    if isinstance(kind, types.Integer):
        extend = builder.sext if kind.signed else builder.zext
        return extend(value, _WORD) if kind.bitwidth < 64 else value
    return builder.bitcast(value, _WORD)


def _items(results: Any) -> list[Any]:
    if isinstance(results, types.NoneType):
        return []
    return list(results) if isinstance(results, types.BaseTuple) else [results]


def _formats(results: Any) -> str:
    """The words of the results, as for `struct`; TypeError for an array."""
    text = ""
    for kind in _items(results):
        if isinstance(kind, types.Boolean):
            text += "?7x"
        elif isinstance(kind, types.Integer):
            text += "q" if kind.signed else "Q"
        elif kind == types.float64:
            text += "d"
        else:
            raise TypeError(f"a kernel that is called from Python returns no {kind}")
    return f"({text})" if isinstance(results, types.BaseTuple) else text


def _add_c_function(
    target: Any, module: Any, callee: Any, symbol: str, kinds: Any, results: Any
) -> None:
    """What `function_at` calls; an exception cannot pass it."""
    kind = ir.FunctionType(
        target.get_value_type(results), [target.get_value_type(argument) for argument in kinds]
    )
    function = ir.Function(module, kind, symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    _, result = target.call_conv.call_function(builder, callee, results, kinds, function.args)
    builder.ret(result)


def _add_text(module: Any, symbol: str, text: str) -> None:
    content = bytearray(text.encode() + b"\0")
    kind = ir.ArrayType(ir.IntType(8), len(content))
    variable = ir.GlobalVariable(module, kind, symbol)
    variable.initializer = ir.Constant(kind, content)
    variable.global_constant = True


def about_object(about: dict[str, str], level: str) -> bytes:
    """The object file of what a library says about itself, and how it sees arrays."""
    module = ir.Module("about")
    module.triple = machine(level).triple
    for symbol, text in about.items():
        _add_text(module, symbol, text)
    kind = ir.FunctionType(ir.VoidType(), [_WORD, _WORDS])
    function = ir.Function(module, kind, "rocescope_array")
    builder = ir.IRBuilder(function.append_basic_block())
    for k, field in enumerate(array_fields(builder, function.args[0], 2)):
        builder.store(field, builder.gep(function.args[1], [_WORD(k)]))
    builder.ret_void()
    _add_memory(module)
    emitted: bytes = machine(level).emit_object(llvm.parse_assembly(str(module)))
    return emitted


def _add_memory(module: Any) -> None:
    """What code of numba calls for arrays that a kernel makes: memory of malloc and free.

    The head of such an array, numba's MemInfo, is 48 bytes: its references, a destructor and its
    argument, data, size, allocator.
    """
    pointer = ir.IntType(8).as_pointer()
    malloc = ir.Function(module, ir.FunctionType(pointer, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), "free")
    kind = ir.FunctionType(pointer, [_WORD, ir.IntType(32)])
    for name in ("NRT_MemInfo_alloc_aligned", "NRT_MemInfo_alloc_safe_aligned"):
        function = ir.Function(module, kind, name)
        function.linkage = "external"
        function.attributes.add("nounwind")
        builder = ir.IRBuilder(function.append_basic_block())
        size, align = function.args[0], builder.zext(function.args[1], _WORD)
        memory = builder.call(malloc, [builder.add(builder.add(size, align), _WORD(48))])
        with builder.if_then(builder.icmp_unsigned("==", memory, pointer(None)), likely=False):
            builder.ret(pointer(None))
        first = builder.add(builder.ptrtoint(memory, _WORD), builder.add(align, _WORD(47)))
        data = builder.sub(first, builder.urem(first, align))
        head = builder.bitcast(memory, _WORDS)
        for k, field in enumerate((_WORD(1), _WORD(0), _WORD(0), data, size, _WORD(0))):
            builder.store(field, builder.gep(head, [_WORD(k)]))
        builder.ret(memory)
    kind = ir.FunctionType(ir.VoidType(), [pointer])
    function = ir.Function(module, kind, "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.call(free, [function.args[0]])
    builder.ret_void()
