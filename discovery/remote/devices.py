"""How devices are reached: `--devices`."""

from __future__ import annotations

import re
from pathlib import Path

from ...analyzer.errors import UsageError
from ..asking.commands import Line
from ..asking.namespaces import Namespaces
from ..dialects.dialect import Dialect
from ..dialects.registry import DIALECTS
from .inventory import Target, read_inventory
from .running import OverSsh

NAMESPACES = "netns:"
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|")


def parse_devices(text: str) -> Line:
    """`netns:PREFIX`: device leaf1 is the network namespace PREFIXleaf1 of this machine; else the
    file of an inventory, whose devices are reached over SSH.

    UsageError for another text, or without asyncssh.
    """
    if text.startswith(NAMESPACES):
        prefix = text.removeprefix(NAMESPACES)
        if not _PREFIX.fullmatch(prefix):
            raise UsageError(f"--devices {text!r}: {prefix!r} is not a prefix of namespaces")
        return Namespaces(prefix)
    return OverSsh(_targets(text))


def dialects_of(text: str) -> dict[str, Dialect]:
    """The dialects of the devices of an inventory, by name; none for namespaces, all of Linux."""
    if text.startswith(NAMESPACES):
        return {}
    return {target.name: target.dialect for target in _targets(text)}


def _targets(text: str) -> list[Target]:
    file = Path(text)
    if not file.is_file():
        raise UsageError(f"--devices {text!r}: give an inventory, or netns:PREFIX")
    return read_inventory(file, DIALECTS)
