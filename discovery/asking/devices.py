"""How devices are reached: `--devices`."""

from __future__ import annotations

import re

from ...analyzer.errors import UsageError
from .commands import Run
from .namespaces import Namespaces

NAMESPACES = "netns:"
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|")


def parse_devices(text: str) -> Run:
    """`netns:PREFIX`: device leaf1 is the network namespace PREFIXleaf1 of this machine.

    UsageError for another text.
    """
    if text.startswith(NAMESPACES):
        prefix = text.removeprefix(NAMESPACES)
        if _PREFIX.fullmatch(prefix):
            return Namespaces(prefix)
    raise UsageError(f"--devices {text!r}: write netns:PREFIX for network namespaces of this host")
