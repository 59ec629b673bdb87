"""Object files of the compiler become images; what is not understood is refused."""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rocescope.kernels.image import callable_of
from rocescope.kernels.link import Unsupported, link
from rocescope.kernels.numba_side import dispatcher

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="images are for x86-64")

# Places in an ELF file (System V ABI, chapter 4).
MACHINE_AT, SECTIONS_AT, COUNT_AT = 0x12, 0x28, 0x3C
SECTION_BYTES, TYPE_AT, FLAGS_AT, OFFSET_AT, SIZE_AT = 0x40, 4, 8, 0x18, 0x20
PROGBITS, RELA = 1, 4
WRITE, ALLOC = 1, 2


def quotients(values: Any, divisors: Any, scale: Any) -> Any:
    """Loops, constants, a division that raises, several results."""
    total = 0.25
    for i in range(len(values)):
        total += values[i] // divisors[i] * scale
    return total, len(values)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The object file of `quotients` and the name of its entry."""
    folder = str(tmp_path_factory.mktemp("kernels"))
    function = dispatcher(quotients, {"cache": True, "nogil": True}, folder)
    array = np.zeros(1, np.int64)
    function.compile(tuple(function.typeof_pyval(value) for value in (array, array, 1)))
    (result,) = function.overloads.values()
    return result.library._get_compiled_object(), result.fndesc.llvm_cpython_wrapper_name


def sections(elf: bytes) -> Iterator[int]:
    """Where the section headers are."""
    (begin,) = struct.unpack_from("<Q", elf, SECTIONS_AT)
    (count,) = struct.unpack_from("<H", elf, COUNT_AT)
    return iter(range(begin, begin + count * SECTION_BYTES, SECTION_BYTES))


def test_an_image_does_what_the_function_does(compiled: tuple[bytes, str]) -> None:
    call = callable_of(link(*compiled), quotients)
    values, divisors = np.arange(10, 20), np.arange(1, 11)
    assert call(values, divisors, 3) == quotients(values, divisors, 3)
    assert call.__name__ == "quotients"


def test_errors_are_the_same(compiled: tuple[bytes, str]) -> None:
    call = callable_of(link(*compiled), quotients)
    array = np.zeros(1, np.int64)
    with pytest.raises(ZeroDivisionError):
        call(array, array, 1)
    with pytest.raises(TypeError):
        call(array, array)
    with pytest.raises(TypeError):
        call(array, None, 1)
    assert call(array, array + 1, 1) == (0.25, 1)


def test_the_entry_must_be_there(compiled: tuple[bytes, str]) -> None:
    with pytest.raises(Unsupported, match="no elsewhere"):
        link(compiled[0], "elsewhere")


def other_machine(elf: bytearray) -> None:
    struct.pack_into("<H", elf, MACHINE_AT, 183)


def not_elf(elf: bytearray) -> None:
    elf[:4] = b"\xcf\xfa\xed\xfe"


def writable_section(elf: bytearray) -> None:
    for at in sections(bytes(elf)):
        (kind, flags) = struct.unpack_from("<IQ", elf, at + TYPE_AT)
        if kind == PROGBITS and flags & ALLOC:
            struct.pack_into("<Q", elf, at + FLAGS_AT, flags | WRITE)


def other_relocation(elf: bytearray) -> None:
    for at in sections(bytes(elf)):
        if struct.unpack_from("<I", elf, at + TYPE_AT) == (RELA,):
            (offset,) = struct.unpack_from("<Q", elf, at + OFFSET_AT)
            struct.pack_into("<I", elf, offset + 8, 9)  # R_X86_64_GOTPCREL


@pytest.mark.parametrize("change", [other_machine, not_elf, writable_section, other_relocation])
def test_what_is_not_understood_is_refused(
    compiled: tuple[bytes, str], change: Callable[[bytearray], None]
) -> None:
    elf = bytearray(compiled[0])
    change(elf)
    with pytest.raises(Unsupported):
        link(bytes(elf), compiled[1])
