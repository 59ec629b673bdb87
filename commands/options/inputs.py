"""Files as arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ...analyzer.errors import UsageError

STANDARD_INPUT = Path("/dev/stdin")
STANDARD_OUTPUT = Path("/dev/stdout")


def input_name(path: Path) -> str:
    """The name of an input for the reader; - is standard input."""
    return "-" if path == STANDARD_INPUT else str(path)


def check_inputs(files: Sequence[Path]) -> None:
    """UsageError when a file is given twice: its packets would count as copies."""
    repeated = {path for path in files if files.count(path) > 1}
    if repeated:
        raise UsageError(f"{min(repeated)} is given twice; its packets would count as copies")


def check_terminal() -> None:
    """UsageError if standard input or output is not a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the terminal UI needs a terminal for input and output; rocescope analyze"
            " works without one"
        )
