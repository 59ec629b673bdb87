"""From a compiler's object file to an image that only needs addresses filled in.

A linker for the little that just-in-time compilers make: ELF for x86-64 (System V
ABI, AMD64 supplement, section 4.4), read-only sections, every address an absolute
64-bit word. What goes beyond raises Unsupported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .image import ENVIRONMENT, EXTERNAL, SELF, Image

_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_X86_64, _R_X86_64_64 = 62, 1
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _COMMON = 0, 0xFFF2
_ENVIRONMENT = "_ZN08NumbaEnv"
"""Prefix of the variables that numba lets point to the Python side of a function."""

_HEADER = np.dtype(
    {
        "names": ["machine", "sections", "count", "names"],
        "formats": ["<u2", "<u8", "<u2", "<u2"],
        "offsets": [0x12, 0x28, 0x3C, 0x3E],
        "itemsize": 0x40,
    }
)
_SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry_size", "<u8"),
    ]
)
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])


class Unsupported(Exception):
    """The object needs more than an image offers."""


def link(elf: bytes, entry: str) -> Image:
    """The image of an object file; `entry` is the symbol of its function.

    Raises Unsupported for what is not understood.
    """
    if not elf.startswith(_ELF64_LITTLE_ENDIAN) or len(elf) < _HEADER.itemsize:
        raise Unsupported("not a 64-bit little-endian ELF file")
    header = np.frombuffer(elf, _HEADER, 1)[0]
    if header["machine"] != _X86_64:
        raise Unsupported(f"machine {header['machine']}")
    sections = np.frombuffer(elf, _SECTION, int(header["count"]), int(header["sections"]))
    return _Linker(elf, sections, int(header["names"])).image(entry)


class _Linker:
    def __init__(self, elf: bytes, sections: NDArray[np.void], names: int) -> None:
        self._elf = elf
        self._sections = sections
        self._section_names = self._bytes(sections[names])
        self._code = bytearray()
        self._at: dict[int, int] = {}  # a section's place in the image
        self._slots: dict[str, int] = {}  # place of a variable that points to the environment
        self._externals: list[str] = []
        self._addresses: list[tuple[int, int, int]] = []  # place, base, addend

    def image(self, entry: str) -> Image:
        for index, section in enumerate(self._sections):
            if section["flags"] & _ALLOC and section["size"]:
                self._lay_out(index, section)
        table = next(s for s in self._sections if s["type"] == _SYMTAB)
        symbols = np.frombuffer(self._bytes(table), _SYMBOL)
        names = self._bytes(self._sections[table["link"]])
        for section in self._sections:
            if section["type"] == _RELA and int(section["info"]) in self._at:
                self._relocate(section, symbols, names)
        begin = next((s for s in symbols if _text(names, s["name"]) == entry), None)
        if begin is None or int(begin["section"]) not in self._at:
            raise Unsupported(f"no {entry}")
        places, bases, addends = np.array(self._addresses, np.int64).reshape(-1, 3).T
        return Image(
            bytes(self._code),
            self._at[int(begin["section"])] + int(begin["value"]),
            tuple(self._externals),
            places.tobytes(),
            bases.tobytes(),
            addends.tobytes(),
        )

    def _lay_out(self, index: int, section: Any) -> None:
        name = _text(self._section_names, section["name"])
        if name == ".eh_frame":
            return  # for unwinding, which nobody does through compiled kernels
        if section["type"] != _PROGBITS or section["flags"] & _WRITE:
            raise Unsupported(f"section {name}")
        self._align(max(int(section["align"]), 1))
        self._at[index] = len(self._code)
        self._code += self._bytes(section)

    def _relocate(self, section: Any, symbols: NDArray[np.void], names: bytes) -> None:
        begin = self._at[int(section["info"])]
        for relocation in np.frombuffer(self._bytes(section), _RELOCATION):
            if relocation["type"] != _R_X86_64_64:
                raise Unsupported(f"relocation {relocation['type']}")
            symbol = symbols[int(relocation["symbol"])]
            base, offset = self._resolve(symbol, _text(names, symbol["name"]))
            place = begin + int(relocation["offset"])
            self._addresses.append((place, base, offset + int(relocation["addend"])))

    def _resolve(self, symbol: Any, name: str) -> tuple[int, int]:
        """Base of a symbol's address, and what to add to it."""
        section = int(symbol["section"])
        if section in self._at:
            return SELF, self._at[section] + int(symbol["value"])
        if section == _UNDEFINED:
            if name not in self._externals:
                self._externals.append(name)
            return EXTERNAL + self._externals.index(name), 0
        if section == _COMMON and name.startswith(_ENVIRONMENT):
            return SELF, self._slot(name)
        raise Unsupported(f"symbol {name}")

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            self._align(8)
            self._slots[name] = len(self._code)
            self._addresses.append((len(self._code), ENVIRONMENT, 0))
            self._code += bytes(8)
        return self._slots[name]

    def _align(self, boundary: int) -> None:
        self._code += bytes(-len(self._code) % boundary)

    def _bytes(self, section: Any) -> bytes:
        begin = int(section["offset"])
        return self._elf[begin : begin + int(section["size"])]


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()
