"""The type of a dialect: fixed read-only commands, and the files that hold their answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ...replay.fabrics.devices.device import Device


class Question(NamedTuple):
    """One command; its answer of device leaf1 is in the file `leaf1.SUFFIX`."""

    suffix: str
    command: str
    why: str
    """What is not known without the answer."""
    root: bool = False
    """Whether it needs root, or a group with more rights than reading."""
    partial: bool = False
    """Whether output is of use although the command failed."""


class Dialect(NamedTuple):
    """The commands of one kind of device, and how its answers are read."""

    name: str
    questions: tuple[Question, ...]
    read: Callable[[Path, str], Device]
    """(folder, name of the device); UsageError names a file that is not such an answer."""
    needed: str
    """Suffix of the answer without which nothing of a device is known."""
    mark: str
    """Suffix of the file that tells the dialect in a folder that people made."""
    told: tuple[str, ...]
    """Suffixes of the answers that tables and hash settings are read from."""
    met: str
    """The systems it was tested with; empty: it never met a device."""
    of_hosts: tuple[Question, ...] = ()
    """Further questions to hosts."""

    def questions_for(self, kind: Literal["switch", "host"]) -> tuple[Question, ...]:
        """What is asked of a switch or a host."""
        return self.questions + (self.of_hosts if kind == "host" else ())
