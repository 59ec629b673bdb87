"""Exported functions of a shared library, with their versions: the part of ELF for probes.

A library may export several versions of one name (`ibv_create_qp@IBVERBS_1.0`
and `ibv_create_qp@@IBVERBS_1.1`); programs linked today call the default one.
Layouts: System V ABI, chapters 4 and 5; LSB Core, "Symbol Versioning".

Any user can map a file under the name of the library. So the work is limited whatever the file
says about itself, and nothing is mapped: a file that is truncated meanwhile would kill the process.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

_ELF64, _LITTLE_ENDIAN, _BIG_ENDIAN = 2, 1, 2
_DYNSYM, _VERSION_DEFINITIONS, _VERSIONS = 11, 0x6FFFFFFD, 0x6FFFFFFF
_LOAD = 1
_FUNCTION, _INDIRECT_FUNCTION = 2, 10
_GLOBAL, _WEAK = 1, 2
_HIDDEN_VERSION = 0x8000
_SYMBOL_BYTES, _VERSION_BYTES = 24, 2

# libc has 3,000 symbols, 60 sections and 10 segments, and names of up to 50 bytes.
_MOST_SYMBOLS, _MOST_SECTIONS, _MOST_SEGMENTS, _MOST_VERSIONS = 1 << 16, 1 << 10, 1 << 6, 1 << 10
_MOST_STRINGS_BYTES, _MOST_NAME_BYTES = 4 << 20, 256


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


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


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
    """All exported functions of a library, given by a descriptor of `opened`; at most 65,536.

    ElfError if the file is damaged, OSError if it is unreadable.
    """
    try:
        return list(_Reader(library).functions())
    except (struct.error, IndexError, OverflowError) as error:
        raise ElfError(f"cut short or damaged: {error}") from None


def defaults(symbols: list[Symbol]) -> dict[str, Symbol]:
    """The default version of every function, by name."""
    return {symbol.name: symbol for symbol in symbols if symbol.is_default}


class _Reader:
    def __init__(self, library: int) -> None:
        self._library = library
        head = self._bytes(0, 6)
        if head[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if head[4] != _ELF64:
            raise ElfError("not a 64-bit library")
        if head[5] not in (_LITTLE_ENDIAN, _BIG_ENDIAN):
            raise ElfError("of no known byte order")
        self._order = "<" if head[5] == _LITTLE_ENDIAN else ">"
        (segments_at, sections_at) = self._read("QQ", 32)
        (entry, segments, section_entry, sections) = self._read("HHHH", 54)
        if segments > _MOST_SEGMENTS or sections > _MOST_SECTIONS:
            raise ElfError("with too many sections")
        self._segments = [
            self._read("QQQQ", segments_at + i * entry + 8)
            for i in range(segments)
            if self._read("I", segments_at + i * entry) == (_LOAD,)
        ]
        self._sections = [self._section(sections_at + i * section_entry) for i in range(sections)]

    def functions(self) -> Iterator[Symbol]:
        """Defined, visible functions of the dynamic symbol table."""
        table = next((s for s in self._sections if s.kind == _DYNSYM), None)
        if table is None:
            raise ElfError("without a dynamic symbol table")
        count = table.size // _SYMBOL_BYTES
        if count > _MOST_SYMBOLS:
            raise ElfError("with too many symbols")
        symbols = self._bytes(table.offset, count * _SYMBOL_BYTES)
        names = self._strings(self._sections[table.link])
        section = next((s for s in self._sections if s.kind == _VERSIONS), None)
        versions = section and self._bytes(section.offset, count * _VERSION_BYTES)
        version_names = self._version_names()
        for i in range(count):
            name_at, info, _, defined_in, address, _ = self._unpacked("IBBHQQ", symbols, i)
            is_function = info & 0xF in (_FUNCTION, _INDIRECT_FUNCTION)
            if not (is_function and info >> 4 in (_GLOBAL, _WEAK) and defined_in):
                continue
            offset = self._file_offset(address)
            if offset is None:
                continue
            number = 1
            if versions is not None:
                (number,) = self._unpacked("H", versions, i)
            yield Symbol(
                _text(names, name_at),
                version_names.get(number & ~_HIDDEN_VERSION),
                not number & _HIDDEN_VERSION,
                address,
                offset,
            )

    def _version_names(self) -> dict[int, str]:
        """Names of the defined versions, by number."""
        section = next((s for s in self._sections if s.kind == _VERSION_DEFINITIONS), None)
        names: dict[int, str] = {}
        if section is None:
            return names
        strings = self._strings(self._sections[section.link])
        at, end = section.offset, section.offset + section.size
        for _ in range(_MOST_VERSIONS):
            if at + 20 > end:
                break
            _, flags, number, _, _, auxiliary, following = self._read("HHHHIII", at)
            (name_at,) = self._read("I", at + auxiliary)
            if not flags & 1:  # not the entry that names the library itself
                names[number] = _text(strings, name_at)
            if not following:
                break
            at += following
        return names

    def _section(self, at: int) -> _Section:
        (kind,) = self._read("I", at + 4)
        offset, size, link = self._read("QQI", at + 24)
        return _Section(kind, offset, size, link)

    def _file_offset(self, address: int) -> int | None:
        for offset, begin, _, size in self._segments:
            if begin <= address < begin + size:
                at = int(address - begin + offset)
                return at if at < 1 << 63 else None
        return None

    def _strings(self, section: _Section) -> bytes:
        return self._bytes(section.offset, min(section.size, _MOST_STRINGS_BYTES))

    def _read(self, layout: str, at: int) -> tuple[int, ...]:
        layout = self._order + layout
        return struct.unpack(layout, self._bytes(at, struct.calcsize(layout)))

    def _unpacked(self, layout: str, table: bytes, index: int) -> tuple[int, ...]:
        """An entry of a table of such entries."""
        layout = self._order + layout
        return struct.unpack_from(layout, table, index * struct.calcsize(layout))

    def _bytes(self, at: int, count: int) -> bytes:
        """Bytes of the file, fewer at its end."""
        return os.pread(self._library, count, at)


def _text(strings: bytes, at: int) -> str:
    name = strings[at : at + _MOST_NAME_BYTES]
    return name.partition(b"\0")[0].decode("utf-8", "replace")
