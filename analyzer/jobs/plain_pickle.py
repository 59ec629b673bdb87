"""Data in a pickle, without executing it: numbers, texts, lists, tuples and dictionaries only.

A pickle is a program. `pickle.load` runs what the file names: whoever writes the file runs code
here. This machine has no instruction that names, imports or calls anything, and refuses a file at
the first instruction that it does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

Plain: TypeAlias = (
    bool | int | float | str | list["Plain"] | tuple["Plain", ...] | dict[str, "Plain"] | None
)

MAGIC: Final = 0x80
"""Every pickle since protocol 2 begins with this byte."""
MOST_OPENED: Final = 100
"""Containers that are open at once."""
_LONGEST_INTEGER_BYTES: Final = 8

_U1: Final = struct.Struct("<B").unpack_from
_U2: Final = struct.Struct("<H").unpack_from
_U4: Final = struct.Struct("<I").unpack_from
_I4: Final = struct.Struct("<i").unpack_from
_U8: Final = struct.Struct("<Q").unpack_from
_F8: Final = struct.Struct(">d").unpack_from

_NAMES: Final = {
    ord("c"): "GLOBAL", 0x93: "STACK_GLOBAL", ord("R"): "REDUCE", ord("i"): "INST",
    ord("o"): "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", ord("b"): "BUILD", 0x82: "EXT1",
    0x83: "EXT2", 0x84: "EXT4", ord("P"): "PERSID", ord("Q"): "BINPERSID",
}  # fmt: skip
"""Instructions that name, make or call something, for the text of the refusal."""


class RefusedPickle(ValueError):
    """A pickle that is not plain data, or is damaged; says what and where."""


def plain(data: bytes) -> Plain:
    """The value in a pickle of protocol 2 to 5; bytes after its end are ignored.

    Time and memory are bounded by the length of `data`. Values that the pickle mentions several
    times are one object: who walks through the value bounds that walk.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, struct.error):
        raise RefusedPickle(f"it ends within an instruction, at byte {machine.at}") from None


class _Machine:
    """The stack, the memory and the place in the program."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._stack: list[Plain] = []
        self._opened: list[list[Plain]] = []
        """The stacks below each open mark."""
        self._memory: list[Plain] = []

    def run(self) -> Plain:
        data, values, others = self.data, _VALUES, _OTHERS
        if not data or data[0] != MAGIC:
            raise RefusedPickle("it does not begin as a pickle of protocol 2 to 5")
        while True:
            code = data[self.at]
            self.at += 1
            if (push := values.get(code)) is not None:
                value = push(self)
                self._stack.append(value)
            elif (other := others.get(code)) is not None:
                other(self)
            elif code == _STOP:
                return self._result()
            else:
                name = _NAMES.get(code, f"instruction 0x{code:02x}")
                raise RefusedPickle(f"it holds {name} at byte {self.at - 1}: not plain data")

    def _result(self) -> Plain:
        if self._opened or len(self._stack) != 1:
            raise RefusedPickle(f"it ends with {len(self._stack)} values, not 1")
        return self._stack[0]

    # --- what instructions are followed by ---------------------------------------------------

    def number(self, read: Callable[[bytes, int], tuple[int]], size: int) -> int:
        (value,) = read(self.data, self.at)
        self.at += size
        return value

    def real(self) -> float:
        (value,) = _F8(self.data, self.at)
        self.at += 8
        assert isinstance(value, float)
        return value

    def bytes(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise IndexError
        part = self.data[self.at : end]
        self.at = end
        return part

    def text(self, count: int) -> str:
        return self.bytes(count).decode("utf-8", "replace")

    def integer(self, count: int) -> int:
        if count > _LONGEST_INTEGER_BYTES:
            raise RefusedPickle(f"it holds an integer of {count} bytes at byte {self.at}")
        return int.from_bytes(self.bytes(count), "little", signed=True)

    # --- what instructions do ----------------------------------------------------------------

    def open(self) -> None:
        if len(self._opened) >= MOST_OPENED:
            raise RefusedPickle(f"more than {MOST_OPENED} containers are open at byte {self.at}")
        self._opened.append(self._stack)
        self._stack = []

    def closed(self) -> list[Plain]:
        """The values since the last mark, which they leave with it."""
        if not self._opened:
            raise RefusedPickle(f"a container ends that did not begin, at byte {self.at}")
        values, self._stack = self._stack, self._opened.pop()
        return values

    def popped(self, count: int) -> list[Plain]:
        if len(self._stack) < count:
            raise RefusedPickle(f"a value is missing at byte {self.at}")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def extend(self, values: list[Plain]) -> None:
        target = self._top()
        if not isinstance(target, list):
            raise RefusedPickle(f"something is appended to what is no list, at byte {self.at}")
        target += values

    def set(self, values: list[Plain]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(values) % 2:
            raise RefusedPickle(f"keys are set in what is no dictionary, at byte {self.at}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str):
                raise RefusedPickle(f"a key is no text, at byte {self.at}")
            target[key] = value

    def put(self, place: int | None = None) -> None:
        value = self._top()
        if place is None or place == len(self._memory):
            self._memory.append(value)
        elif place < len(self._memory):
            self._memory[place] = value
        else:
            raise RefusedPickle(f"it skips places of its memory, at byte {self.at}")

    def get(self, place: int) -> Plain:
        if place >= len(self._memory):
            raise RefusedPickle(f"it reads memory that was never written, at byte {self.at}")
        return self._memory[place]

    def _top(self) -> Plain:
        if not self._stack:
            raise RefusedPickle(f"a value is missing at byte {self.at}")
        return self._stack[-1]


_STOP: Final = ord(".")

_VALUES: Final[dict[int, Callable[[_Machine], Plain]]] = {
    ord("N"): lambda machine: None,
    0x88: lambda machine: True,
    0x89: lambda machine: False,
    ord("K"): lambda machine: machine.number(_U1, 1),
    ord("M"): lambda machine: machine.number(_U2, 2),
    ord("J"): lambda machine: machine.number(_I4, 4),
    0x8A: lambda machine: machine.integer(machine.number(_U1, 1)),
    ord("G"): lambda machine: machine.real(),
    0x8C: lambda machine: machine.text(machine.number(_U1, 1)),
    ord("X"): lambda machine: machine.text(machine.number(_U4, 4)),
    0x8D: lambda machine: machine.text(machine.number(_U8, 8)),
    ord("]"): lambda machine: [],
    ord("}"): lambda machine: {},
    ord(")"): lambda machine: (),
    ord("t"): lambda machine: tuple(machine.closed()),
    0x85: lambda machine: tuple(machine.popped(1)),
    0x86: lambda machine: tuple(machine.popped(2)),
    0x87: lambda machine: tuple(machine.popped(3)),
    ord("h"): lambda machine: machine.get(machine.number(_U1, 1)),
    ord("j"): lambda machine: machine.get(machine.number(_U4, 4)),
}
"""Instructions that push a value."""

_OTHERS: Final[dict[int, Callable[[_Machine], object]]] = {
    0x80: lambda machine: machine.number(_U1, 1),  # protocol
    0x95: lambda machine: machine.number(_U8, 8),  # length of a frame
    ord("("): lambda machine: machine.open(),
    ord("a"): lambda machine: machine.extend(machine.popped(1)),
    ord("e"): lambda machine: machine.extend(machine.closed()),
    ord("s"): lambda machine: machine.set(machine.popped(2)),
    ord("u"): lambda machine: machine.set(machine.closed()),
    ord("q"): lambda machine: machine.put(machine.number(_U1, 1)),
    ord("r"): lambda machine: machine.put(machine.number(_U4, 4)),
    0x94: lambda machine: machine.put(),
}
