"""The type of a way to run commands on devices: many devices at once, standard input, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias


class Request(NamedTuple):
    """A command for one device. Commands are constants; what packets or switches name is checked
    before it becomes part of `stdin`."""

    device: str
    command: str
    stdin: bytes = b""
    most_bytes: int = 16 << 20
    """Of its answer; more is a problem. A lab of namespaces has no such limit."""


class Said(NamedTuple):
    """What a device said."""

    output: bytes
    """Also of a command that failed after a part of its output."""
    problem: str
    """Why it is missing or incomplete; empty: complete."""


Run: TypeAlias = Callable[[Sequence[Request]], list[Said]]
"""Runs all requests at once; one `Said` per request, and no exception for a device that fails."""


class Line(Protocol):
    """A way to run commands that also listens to one that does not end."""

    def __call__(self, requests: Sequence[Request]) -> list[Said]:
        """As `Run`."""

    def listen(self, device: str, command: str, heard: Callable[[], object]) -> str:
        """Run a command until it ends: the reason. Calls `heard` when it begins, and whenever it
        prints.

        The next command to this device begins with a new connection.
        """

    def close(self) -> None:
        """End all commands and connections."""
