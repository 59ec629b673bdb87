"""How devices are reached: `--devices`."""

from __future__ import annotations

import re
from pathlib import Path

from ...analyzer.errors import UsageError
from ..asking.commands import Run
from ..asking.namespaces import Namespaces
from ..dialects.registry import DIALECTS
from .inventory import read_inventory
from .running import OverSsh

NAMESPACES = "netns:"
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|")


def parse_devices(text: str) -> Run:
    """`netns:PREFIX`: device leaf1 is the network namespace PREFIXleaf1 of this machine; else the
    file of an inventory, whose devices are reached over SSH.

    UsageError for another text, or without asyncssh.
    """
    if text.startswith(NAMESPACES):
        prefix = text.removeprefix(NAMESPACES)
        if not _PREFIX.fullmatch(prefix):
            raise UsageError(f"--devices {text!r}: {prefix!r} is no prefix of namespaces")
        return Namespaces(prefix)
    file = Path(text)
    if not file.is_file():
        raise UsageError(f"--devices {text!r}: give an inventory, or netns:PREFIX")
    return OverSsh(read_inventory(file, DIALECTS))
