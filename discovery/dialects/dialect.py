"""The type of a dialect: fixed read-only commands, and the files that hold their answers."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """One command; its answer of device leaf1 is in the file `leaf1.SUFFIX`."""

    suffix: str
    command: str
    why: str
    """What is not known without the answer."""


class Dialect(NamedTuple):
    """The commands of one kind of device."""

    name: str
    questions: tuple[Question, ...]
