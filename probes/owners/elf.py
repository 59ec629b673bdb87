"""Exported functions of a shared library, with their versions: the part of ELF for probes.

A library may export several versions of one name (`ibv_create_qp@IBVERBS_1.0`
and `ibv_create_qp@@IBVERBS_1.1`); programs linked today call the default one.
Layouts: System V ABI, chapters 4 and 5; LSB Core, "Symbol Versioning".
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_ELF64, _LITTLE_ENDIAN, _BIG_ENDIAN = 2, 1, 2
_DYNSYM, _VERSION_DEFINITIONS, _VERSIONS = 11, 0x6FFFFFFD, 0x6FFFFFFF
_LOAD = 1
_FUNCTION, _INDIRECT_FUNCTION = 2, 10
_GLOBAL, _WEAK = 1, 2
_HIDDEN_VERSION = 0x8000


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


def exported_functions(path: str | os.PathLike[str]) -> list[Symbol]:
    """All exported functions. ElfError if the file is damaged, OSError if it is unreadable."""
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise ElfError("an empty file") from None
    with data:
        try:
            return list(_Reader(data).functions())
        except (struct.error, IndexError, OverflowError) as error:
            raise ElfError(f"cut short or damaged: {error}") from None


def default_function(path: str | os.PathLike[str], name: str) -> Symbol | None:
    """The default version of a function; None if the function is missing."""
    return defaults(exported_functions(path)).get(name)


def defaults(symbols: list[Symbol]) -> dict[str, Symbol]:
    """The default version of every function, by name."""
    return {symbol.name: symbol for symbol in symbols if symbol.is_default}


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        if data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        if data[4] != _ELF64:
            raise ElfError("not a 64-bit library")
        if data[5] not in (_LITTLE_ENDIAN, _BIG_ENDIAN):
            raise ElfError("of no known byte order")
        self._order = "<" if data[5] == _LITTLE_ENDIAN else ">"
        (segments_at, sections_at) = self._read("QQ", 32)
        (entry, segments, section_entry, sections) = self._read("HHHH", 54)
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
        names = self._sections[table.link]
        versions = next((s for s in self._sections if s.kind == _VERSIONS), None)
        version_names = self._version_names()
        for i in range(table.size // 24):
            name_at, info, _, defined_in, address = self._read("IBBHQ", table.offset + 24 * i)
            is_function = info & 0xF in (_FUNCTION, _INDIRECT_FUNCTION)
            if not (is_function and info >> 4 in (_GLOBAL, _WEAK) and defined_in):
                continue
            offset = self._file_offset(address)
            if offset is None:
                continue
            number = 1
            if versions is not None:
                (number,) = self._read("H", versions.offset + 2 * i)
            yield Symbol(
                self._text(names, name_at),
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
        strings = self._sections[section.link]
        at, end = section.offset, section.offset + section.size
        while at + 20 <= end:
            _, flags, number, _, _, auxiliary, following = self._read("HHHHIII", at)
            (name_at,) = self._read("I", at + auxiliary)
            if not flags & 1:  # not the entry that names the library itself
                names[number] = self._text(strings, name_at)
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
                return int(address - begin + offset)
        return None

    def _text(self, strings: _Section, at: int) -> str:
        begin = strings.offset + at
        end = self._data.find(b"\0", begin)
        return self._data[begin : max(begin, end)].decode("utf-8", "replace")

    def _read(self, layout: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + layout, self._data, at)
