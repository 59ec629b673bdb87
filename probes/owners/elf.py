"""Exported functions of a shared library, with their versions: the part of ELF for probes.

A library may export several versions of one name (`ibv_create_qp@IBVERBS_1.0`
and `ibv_create_qp@@IBVERBS_1.1`); programs linked today call the default one.

Any user can map a file under the name of the library. So the reads are limited whatever the file
says about itself, and nothing is mapped: a file that is truncated meanwhile would kill the process.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_BASE_VERSION = 1
"""VER_FLG_BASE: this definition names the library itself."""
_HIDDEN_VERSION = 0x8000

_MOST_READS, _MOST_READ_BYTES = 1 << 17, 64
"""libibverbs needs 5,000 reads, libc 56,000; pyelftools reads names by 64 bytes."""


class ElfError(ValueError):
    """The file is not a shared library that this reader supports."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """One exported function."""

    name: str
    version: str | None
    is_default: bool
    """Whether newly linked programs use this version."""
    address: int
    """Virtual address in the library."""
    file_offset: int
    """File offset of its first instruction, as a uprobe needs it."""


class _LimitedFile(io.FileIO):
    """pyelftools does nothing without a read, so a limit of reads bounds its time and memory."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Some bytes at the position; ElfError after too many reads."""
        self.reads += 1
        if self.reads > _MOST_READS:
            raise ElfError("with too many sections or symbols")
        return super().read(_MOST_READ_BYTES if size is None else min(size, _MOST_READ_BYTES))


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """The descriptor of a file; ElfError if it is not a regular one, OSError if it is unreadable.

    A pipe or device is never waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ElfError("not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def exported_functions(path: str | os.PathLike[str]) -> list[Symbol]:
    """The functions of the library at a path; errors as of `opened` and `functions_of`."""
    with opened(path) as library:
        return functions_of(library)


def functions_of(library: int) -> list[Symbol]:
    """All exported functions of a library, given by a descriptor of `opened`.

    ElfError if the file is damaged or too large.
    """
    from elftools.elf.elffile import ELFFile

    if os.pread(library, 4, 0) != b"\x7fELF":
        raise ElfError("not an ELF file")
    with _LimitedFile(library, closefd=False) as file:
        try:
            return list(_functions(ELFFile(file)))
        except ElfError:
            raise
        except Exception:  # damage leads to many kinds of exceptions in pyelftools
            if file.reads > _MOST_READS:
                raise ElfError("with too many sections or symbols") from None
            raise ElfError("cut short or damaged") from None


def defaults(symbols: list[Symbol]) -> dict[str, Symbol]:
    """The default version of every function, by name."""
    return {symbol.name: symbol for symbol in symbols if symbol.is_default}


def _functions(library: ELFFile) -> Iterator[Symbol]:
    """Defined, visible functions of the dynamic symbol table."""
    if library.elfclass != 64:
        raise ElfError("not a 64-bit library")
    sections: dict[str, Any] = {section["sh_type"]: section for section in library.iter_sections()}
    if "SHT_DYNSYM" not in sections:
        raise ElfError("without a dynamic symbol table")
    definitions, numbers = (sections.get(f"SHT_GNU_{kind}") for kind in ("verdef", "versym"))
    versions = {
        version["vd_ndx"]: next(names).name
        for version, names in (definitions.iter_versions() if definitions else ())
        if not version["vd_flags"] & _BASE_VERSION
    }
    segments = [segment.header for segment in library.iter_segments("PT_LOAD")]
    for i, symbol in enumerate(sections["SHT_DYNSYM"].iter_symbols()):
        info, offset = symbol["st_info"], _file_offset(segments, symbol["st_value"])
        if (
            info["type"] not in ("STT_FUNC", "STT_LOOS")  # STT_LOOS: STT_GNU_IFUNC
            or info["bind"] not in ("STB_GLOBAL", "STB_WEAK")
            or symbol["st_shndx"] == "SHN_UNDEF"
            or offset is None
        ):
            continue
        number = numbers.get_symbol(i)["ndx"] if numbers else None
        if isinstance(number, int):
            version, is_default = versions.get(number & ~_HIDDEN_VERSION), number < _HIDDEN_VERSION
        else:  # local, or without versions
            version, is_default = None, True
        yield Symbol(symbol.name, version, is_default, symbol["st_value"], offset)


def _file_offset(segments: list[Any], address: int) -> int | None:
    for segment in segments:
        offset = address - segment["p_vaddr"]
        if 0 <= offset < segment["p_filesz"] and offset + segment["p_offset"] < 1 << 63:
            return offset + segment["p_offset"]
    return None
