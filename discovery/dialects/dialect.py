"""The type of a dialect: fixed read-only commands, and the files that hold their answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ...replay.fabrics.devices.device import Device
from ..asking.route_get import Query
from ..port_counters import Bytes, Port


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
    counts: bool = False
    """Whether it is asked for byte counters of ports alone: no fact of a fabric is missing without
    its answer."""
    instead_of: str = ""
    """Suffix of another answer: this question is asked only if that one has no complete answer."""


class Calculator(NamedTuple):
    """A command of a system that shows which port a flow takes."""

    template: str
    """The command, with fields of a `Query`: addresses, numbers and a checked name of a port."""
    port: Callable[[bytes], str | None]
    """The port of an answer; None: the answer names none, or is not as documented."""
    ipv6: bool = False
    """Whether its documentation shows it for IPv6."""

    def command(self, query: Query) -> str:
        """The command for one flow."""
        return self.template.format_map(query._asdict())


class Dialect(NamedTuple):
    """The commands of one kind of device, and how its answers are read."""

    name: str
    questions: tuple[Question, ...]
    read: Callable[[Path, str], Device]
    """(folder, name of the device); UsageError names a file that is not such an answer."""
    mark: str
    """Suffix of the file that shows the dialect in a folder that people made."""
    forwarding: tuple[str, ...]
    """Suffixes of the answers that tables and hash settings are read from."""
    needed: str = ""
    """Suffix of the answer without which nothing of a device is known; empty: there is none."""
    met: str = ""
    """The systems it was tested with; empty: it never met a device."""
    of_hosts: tuple[Question, ...] = ()
    """Further questions to hosts."""
    calculator: Calculator | None = None
    """For `trace --ask`; None: `ip route get`, or none at all if it never met a device."""
    counters: tuple[str, Callable[[Path, str, str], dict[Port, Bytes]]] | None = None
    """(suffix, reader of folder, device and suffix) of an answer with byte counters of ports."""
    role: Callable[[tuple[str, ...], str], str] | None = None
    """(commands, user) to the configuration of a user who can only read; None: a shell script."""

    def questions_for(self, kind: Literal["switch", "host"]) -> tuple[Question, ...]:
        """What is asked of a switch or a host."""
        return self.questions + (self.of_hosts if kind == "host" else ())
