"""The type of a way to run commands on devices: many devices at once, standard input, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias


class Request(NamedTuple):
    """A command for one device. Commands are constants; what packets or switches name is checked
    before it becomes part of `stdin`."""

    device: str
    command: str
    stdin: bytes = b""


class Said(NamedTuple):
    """What a device said."""

    output: bytes
    """Also of a command that failed after a part of its output."""
    problem: str
    """Why it is missing or incomplete; empty: complete."""


Run: TypeAlias = Callable[[Sequence[Request]], list[Said]]
"""Runs all requests at once; one `Said` per request, and no exception for a device that fails."""
